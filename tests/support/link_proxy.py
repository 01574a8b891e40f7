"""A TCP proxy between the ends of a channel that resets connections, cuts them anywhere, and delays or slows them.

It stands in for a bad network: the received bytes are a prefix of the sent ones, as after any cut. TCP itself handles
loss, duplicates and order below that.
"""

from __future__ import annotations

import random
import select
import socket
import struct
import threading
import time
from contextlib import suppress

_PART = 64 * 1024


class LinkProxy:
    """Forwards connections to `target`, from `address`, in threads."""

    def __init__(self, target: tuple[str, int], host: str = "127.0.0.1", port: int = 0) -> None:
        self.target = target
        self.delay = 0.0  # seconds before each part
        self.rate = 0.0  # bytes per second; 0: unbounded
        self.blocked = False  # no bytes pass, without an error at either end
        self.connections = 0
        self.resets = 0
        self._pairs: dict[tuple[socket.socket, socket.socket], threading.Lock] = {}
        """Each with a lock for forwarding: bytes that another thread read meanwhile would arrive out of order."""
        self._lock = threading.Lock()
        self._listener = socket.create_server((host, port))
        self.address = self._listener.getsockname()[:2]
        self._closed = False
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    @property
    def url(self) -> str:
        return f"tcp://{self.address[0]}:{self.address[1]}"

    def _accept(self) -> None:
        while not self._closed:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            try:
                far = socket.create_connection(self.target, 5)
            except OSError:
                near.close()
                continue
            far.settimeout(None)
            with self._lock:
                self.connections += 1
                passing = self._pairs[near, far] = threading.Lock()
                thread = threading.Thread(target=self._forward, args=(near, far, passing), daemon=True)
                self._threads.append(thread)
            thread.start()

    def _forward(self, near: socket.socket, far: socket.socket, passing: threading.Lock) -> None:
        other = {near: far, far: near}
        try:
            while True:
                for readable in select.select([near, far], [], [], 0.5)[0]:
                    with passing:
                        if not self._pass_on(readable, other[readable]):
                            return
        except (OSError, ValueError):
            pass
        finally:
            with self._lock:
                del self._pairs[near, far]
            near.close()
            far.close()

    def _pass_on(self, source: socket.socket, target: socket.socket) -> bool:
        """Forward one part. False: the source has ended."""
        part = source.recv(_PART)
        if not part:
            return False
        if self.delay:
            time.sleep(self.delay)
        while self.blocked and not self._closed:
            time.sleep(0.01)
        target.sendall(part)
        if self.rate:
            time.sleep(len(part) / self.rate)
        return True

    def reset(self, chance: random.Random | None = None) -> int:
        """Reset all connections, in both directions. With `chance`, first forward a part of the pending bytes."""
        with self._lock:
            pairs = list(self._pairs.items())
        for (near, far), passing in pairs:
            if chance is not None and chance.random() < 0.5 and passing.acquire(blocking=False):
                try:
                    with suppress(OSError, ValueError):
                        far.sendall(near.recv(chance.randint(1, 4096), socket.MSG_DONTWAIT))
                finally:
                    passing.release()
            for end in (near, far):
                with suppress(OSError):
                    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    end.shutdown(socket.SHUT_RDWR)
            self.resets += 1
        return len(pairs)

    def close(self) -> None:
        self._closed = True
        self._listener.close()
        self.reset()
        with suppress(OSError):  # wakes accept()
            socket.create_connection(self.address, 0.1).close()
        for thread in self._threads:
            thread.join(5)
