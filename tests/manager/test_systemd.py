"""The units for `systemctl --user`, under the test's own systemd if one can be started."""

from __future__ import annotations

import configparser
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from manager_world import BOUND, ROOT, SUPPORT

from shmtensor.manager import address, cli

pytestmark = pytest.mark.any_python

UNITS = Path(address.__file__).parent / "systemd"
NAMES = ("shmtensor-manager.socket", "shmtensor-manager.service")
COMMAND = f"{sys.executable} -m shmtensor.manager"


def install(directory: Path) -> list[Path]:
    """As docs/operating.md says, with an interpreter of which no script is installed."""
    for name in NAMES:
        (directory / name).write_text((UNITS / name).read_text().replace("@COMMAND@", COMMAND))
    return [directory / name for name in NAMES]


def read(name: str) -> configparser.ConfigParser:
    parser = configparser.ConfigParser(interpolation=None)
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    parser.read_string((UNITS / name).read_text())
    return parser


def test_the_units_are_where_programs_look_and_run_what_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SHMTENSOR_RUNTIME_DIR")
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/tmp")
    place = read("shmtensor-manager.socket")["Socket"]["ListenSequentialPacket"]
    assert address.shared_address(address.runtime_path()) == place.replace("%t", "/tmp").encode()
    service = read("shmtensor-manager.service")["Service"]
    for key, command in (("ExecStart", "serve"), ("ExecReload", "restart")):
        _, *words = shlex.split(service[key])
        options = cli._parser(words[0]).parse_args(words)
        assert (options.command, options.address) == (command, place)


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd-analyze is not installed")
def test_systemd_understands_the_units(tmp_path: Path) -> None:
    def verify() -> str:
        words = ["systemd-analyze", "--user", "--man=no", "verify", *map(str, units)]
        env = {**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)}
        done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=BOUND)
        return done.stdout + done.stderr

    units = install(tmp_path)
    assert verify() == ""
    units[1].write_text(units[1].read_text().replace("Type=notify", "Type=told"))
    assert "told" in verify()


# ------------------------------------------------------------------------------------------------------ a real systemd


# What runs in a mount namespace of its own, in which systemd seems to have booted the machine.
BOOT = """
set -e
mount -t tmpfs tmpfs /run
mkdir -p /run/systemd/system "$XDG_RUNTIME_DIR"
chmod 700 "$XDG_RUNTIME_DIR"
mount -t cgroup2 cgroup2 /sys/fs/cgroup
own=/sys/fs/cgroup$(sed -n s/^0:://p /proc/self/cgroup)
group=$own/$1
mkdir "$group"
echo 0 > "$group/cgroup.procs"
cd /
timeout -s KILL 90 /lib/systemd/systemd --user --log-target=console > "$HOME/systemd.log" 2>&1 &
shift
set +e
for _ in $(seq 100); do
    systemctl --user list-units > /dev/null 2>&1 && break
    sleep 0.1
done
"$@"
code=$?
systemctl --user exit
wait
echo 0 > "$own/cgroup.procs"
for _ in $(seq 200); do  # a manager in the background may not have left yet
    [ -d "$group" ] || break
    find "$group" -depth -type d -exec rmdir {} + 2>/dev/null || sleep 0.1
done
exit $code
"""
DRIVER = """
import os, signal, subprocess, sys
from manager_world import until
import shmtensor
from shmtensor.manager import client

def systemctl(*words):
    done = subprocess.run(["systemctl", "--user", *words], capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, (words, done.stderr)
    return done.stdout.strip()

def shown(name, unit="shmtensor-manager.service"):
    return systemctl("show", "--property", name, "--value", unit)

systemctl("start", "shmtensor-manager.socket")
"""
LIFE = """
assert shown("MainPID") == "0"
manager = client.default()
tensor = shmtensor.full((1000,), 3.0, shared=True)
first = manager.stats()
assert str(first.pid) == shown("MainPID") and not first.private and first.epoch == 1, first
assert "supervised service" in subprocess.run(
    [sys.executable, "-m", "shmtensor.manager", "status", "--address", first.address],
    capture_output=True, text=True, timeout=30,
).stdout
for epoch in (2, 3):
    systemctl("reload", "shmtensor-manager.service")
    stats = manager.stats()
    assert (stats.pid, stats.epoch) == (first.pid, epoch) and shown("MainPID") == str(first.pid), stats
    assert shown("ActiveState") == "active"
systemctl("restart", "shmtensor-manager.service")
second = manager.stats()
assert str(second.pid) == shown("MainPID") != str(first.pid) and not second.private, second
assert second.epoch == 5, "one in the background was between them"
os.kill(second.pid, signal.SIGKILL)
third = manager.stats()
assert third.epoch == 6 and not third.private, "the client waited for the service"
until(lambda: shown("MainPID") == str(third.pid), "systemd to know")
assert shown("NRestarts") == "1"
assert (tensor.numpy() == 3.0).all() and manager.open(manager.export(tensor.storage()._region))
systemctl("stop", "shmtensor-manager.socket", "shmtensor-manager.service")
last = manager.stats()
assert last.private and last.pid != third.pid
del tensor
print("lived")
"""


KEPT = """
code = (
    "from shmtensor.manager import client; m = client.default(); b = m.allocate(8192)\\n"
    "memoryview(b)[:4] = b'sent'; print(b.segment, b.index, b.generation, *m.ticket(b))"
)
numbers = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=True).stdout
pid = shown("MainPID")
until(lambda: shown("NFileDescriptorStore") == "3", "systemd to keep group, metadata and payload")
os.kill(int(pid), signal.SIGKILL)
until(lambda: shown("MainPID") not in (pid, "0"), "the next process of the service")
manager = client.default()
assert manager.stats().epoch == 2, "of the same group"
block = manager.redeem(*map(int, numbers.split()))
assert bytes(memoryview(block)[:4]) == b"sent"
del block
until(lambda: manager.gc() and shown("NFileDescriptorStore") == "1", "systemd to close the descriptors of the segment")
print("kept")
"""


class Systemd:
    """Runs programs beside a `systemd --user` that has the units."""

    def __init__(self, home: Path) -> None:
        self.home = home
        units = home / ".config" / "systemd" / "user"
        units.mkdir(parents=True)
        install(units)

    def run(self, program: str) -> subprocess.CompletedProcess[str]:
        env = {key: value for key, value in os.environ.items() if not key.startswith(("XDG_", "SHMTENSOR_", "DBUS_"))}
        env |= {"HOME": str(self.home), "XDG_RUNTIME_DIR": f"/run/user/{os.geteuid()}"}
        env["PYTHONPATH"] = f"{ROOT}:{SUPPORT}"
        words = ["unshare", "--mount", "--propagation", "private", "sh", "-c", BOOT, "sh", f"shmtensor-{os.getpid()}"]
        return subprocess.run([*words, *shlex.split(program)], env=env, capture_output=True, text=True, timeout=100)


@pytest.fixture
def systemd(tmp_path: Path) -> Iterator[Systemd]:
    if os.geteuid() or not Path("/lib/systemd/systemd").exists():
        pytest.skip("needs root and systemd")
    made = Systemd(tmp_path)
    done = made.run("systemctl --user list-units")
    if done.returncode:
        pytest.skip(f"a systemd of its own cannot be started here: {done.stderr}")
    yield made


@pytest.mark.exhaustive
@pytest.mark.parametrize(("program", "said"), [(LIFE, "lived"), (KEPT, "kept")], ids=["life", "kept"])
def test_the_service(systemd: Systemd, program: str, said: str) -> None:
    """Its life over restarts, stops and kills; and what only the manager had when it was killed."""
    path = systemd.home / "program.py"
    path.write_text(DRIVER + program)
    done = systemd.run(f"{sys.executable} {path}")
    log = (systemd.home / "systemd.log").read_text()
    assert done.returncode == 0 and said in done.stdout, done.stderr + log
