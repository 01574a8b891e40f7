"""Two network namespaces joined by a link that loses, delays, repeats and reorders packets, and cuts connections.

It does the work of `tc netem` in a program: the link reads the packets of two TUN devices, one in each namespace. So it
needs no kernel module, and it can cut connections like a firewall that has lost its state.
"""

from __future__ import annotations

import ctypes
import fcntl
import heapq
import itertools
import os
import random
import select
import shutil
import struct
import subprocess
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

CLONE_NEWNET: Final = 0x40000000
TUNSETIFF: Final = 0x400454CA
IFF_TUN_NO_PI: Final = 0x1001
TCP: Final = 6
FIN, SYN, RST, ACK = 1, 2, 4, 16
ADDRESSES: Final = ("10.92.0.1", "10.92.0.2")
OWN_PIDS: Final = ("unshare", "--pid", "--mount", "--fork", "--kill-child", "--mount-proc")
OWN_MEMORY: Final = ("sh", "-c", 'mount -t tmpfs tmpfs /dev/shm && "$@"; exit $?', "sh")
_PACKET: Final = 65536
_QUEUE_SECONDS: Final = 0.2
"""A slow link drops packets that would wait for longer."""


def unavailable() -> str:
    """Why there can be no such network here; empty if there can."""
    if os.geteuid() != 0:
        return "namespaces need root"
    missing = [program for program in ("ip", "nsenter", "unshare") if shutil.which(program) is None]
    if missing:
        return f"there is no {missing[0]}"
    if subprocess.run([*OWN_PIDS, "--net", "true"], capture_output=True, check=False).returncode:
        return "this process may not make namespaces"
    return "" if os.access("/dev/net/tun", os.R_OK | os.W_OK) else "there is no /dev/net/tun"


@dataclass
class Weather:
    """The effects of the link on packets."""

    loss: float = 0.0
    """Share of packets that are lost."""
    repeats: float = 0.0
    """Share of packets that arrive twice."""
    delay: float = 0.0
    """Seconds that each packet takes."""
    jitter: float = 0.0
    """Seconds of random additional delay: later packets may overtake."""
    rate: float = 0.0
    """Bytes per second in each direction; 0: unbounded."""


class BadNetwork:
    """The network. Commands in a namespace are started with its prefix; `close` after all of them have ended."""

    def __init__(self, weather: Weather, seed: int = 1, mtu: int = 1500) -> None:
        self.weather = weather
        self._mtu = mtu
        self.lost = self.repeated = self.passed = self.resets = 0
        self._chance = random.Random(seed)
        self._namespaces: list[int] = []
        self._devices: list[int] = []
        self._connections: dict[tuple[Any, ...], int] = {}
        """The open connections, each with the bytes that it has sent."""
        self._cut: set[tuple[Any, ...]] = set()
        self._waiting: list[tuple[float, int, int, bytes]] = []
        self._free_at = [0.0, 0.0]
        self._numbers = itertools.count()
        self._lock = threading.Lock()
        self._closed = False
        for number in range(2):
            maker = threading.Thread(target=self._make, args=(number,))  # a namespace belongs to a thread
            maker.start()
            maker.join()
        if len(self._namespaces) < 2:
            self.close()
            raise OSError("the namespaces cannot be made")
        self._thread = threading.Thread(target=self._pass_packets, daemon=True)
        self._thread.start()

    def _make(self, number: int) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.unshare(CLONE_NEWNET):
            return
        device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
        self._devices.append(device)
        fcntl.ioctl(device, TUNSETIFF, struct.pack("16sH22x", b"eth0", IFF_TUN_NO_PI))
        own, other = ADDRESSES[number], ADDRESSES[1 - number]
        device_up = f"link set eth0 mtu {self._mtu} up"
        for command in (f"address add {own}/32 peer {other} dev eth0", device_up, "link set lo up"):
            subprocess.run(["ip", *command.split()], check=True)
        self._namespaces.append(os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC))

    def prefix(self, number: int) -> list[str]:
        """The prefix of a command that runs in this network, with its own processes, mounts and /dev/shm."""
        network = ["nsenter", f"--net=/proc/{os.getpid()}/fd/{self._namespaces[number]}"]
        return [*network, *OWN_PIDS, *OWN_MEMORY]

    def reset(self, sent: int = 0) -> int:
        """Cut the TCP connections that have sent this many bytes; the ends get a reset. Returns how many."""
        with self._lock:
            found = [connection for connection, nbytes in self._connections.items() if nbytes >= sent]
            for connection in found:
                del self._connections[connection]
            self._cut.update(found)
            self.resets += len(found)
        return len(found)

    def close(self) -> None:
        """Take the network down. All processes in it must have ended."""
        self._closed = True
        if len(self._namespaces) == 2:
            self._thread.join(5)
        for descriptor in (*self._devices, *self._namespaces):
            os.close(descriptor)

    # ----------------------------------------------------------------------------------------------------- the link

    def _pass_packets(self) -> None:
        while not self._closed:
            wait = min(0.1, self._waiting[0][0] - time.monotonic()) if self._waiting else 0.1
            for device in select.select(self._devices, [], [], max(0.0, wait))[0]:
                with suppress(BlockingIOError):
                    for _ in range(64):
                        self._take(self._devices.index(device), os.read(device, _PACKET))
            now = time.monotonic()
            while self._waiting and self._waiting[0][0] <= now:
                _, _, target, packet = heapq.heappop(self._waiting)
                self._give(target, packet)

    def _give(self, target: int, packet: bytes) -> None:
        with suppress(OSError):  # the device is down, or its queue is full: lost, as on any link
            os.write(self._devices[target], packet)
            self.passed += 1

    def _take(self, source: int, packet: bytes) -> None:
        """Forward, lose, repeat or delay a packet that one side has sent."""
        if packet[0] >> 4 != 4 or self._is_cut(source, packet):
            return
        weather, chance = self.weather, self._chance.random
        times = 2 if chance() < weather.repeats else 1
        self.repeated += times - 1
        for _ in range(times):
            if chance() < weather.loss:
                self.lost += 1
                continue
            now = time.monotonic()
            begin = max(now, self._free_at[source])
            if weather.rate:
                if begin - now > _QUEUE_SECONDS:
                    self.lost += 1
                    continue
                begin += len(packet) / weather.rate
                self._free_at[source] = begin
            at = begin + weather.delay + weather.jitter * chance()
            if at <= now:
                self._give(1 - source, packet)
            else:
                heapq.heappush(self._waiting, (at, next(self._numbers), 1 - source, packet))

    def _is_cut(self, source: int, packet: bytes) -> bool:
        """Keep the list of connections; answer a packet of one that was cut with a reset."""
        at = (packet[0] & 15) * 4
        if packet[9] != TCP or len(packet) < at + 20:
            return False
        ports = struct.unpack_from("!HH", packet, at)
        connection = ports if source == 0 else ports[::-1]
        flags = packet[at + 13]
        with self._lock:
            if flags & SYN:
                self._cut.discard(connection)
            if connection in self._cut:
                if flags & ACK and not flags & RST:
                    self._give(source, _reset_for(packet, at, ports))
                return True
            if flags & (RST | FIN):
                self._connections.pop(connection, None)
            elif not flags & SYN:
                self._connections[connection] = self._connections.get(connection, 0) + len(packet)
        return False


def _reset_for(packet: bytes, at: int, ports: tuple[int, int]) -> bytes:
    """Return the reset that the receiver of a packet would send, with the sequence number that its sender expects."""
    source, target = packet[12:16], packet[16:20]
    (expected,) = struct.unpack_from("!I", packet, at + 8)
    tcp = struct.pack("!HHIIBBHHH", ports[1], ports[0], expected, 0, 5 << 4, RST, 0, 0, 0)
    check = _checksum(target + source + struct.pack("!HH", TCP, len(tcp)) + tcp)
    tcp = tcp[:16] + struct.pack("!H", check) + tcp[18:]
    ip = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(tcp), 0, 0, 64, TCP, 0) + target + source
    return ip[:10] + struct.pack("!H", _checksum(ip)) + ip[12:] + tcp


def _checksum(data: bytes) -> int:
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF
