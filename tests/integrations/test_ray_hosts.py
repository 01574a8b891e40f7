"""A Ray cluster of two hosts, which are network, process and mount namespaces. Needs Ray, and root."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytest.importorskip("ray")
pytest.importorskip("ray.experimental.rdt")

from bad_network import ADDRESSES, BadNetwork, Weather, unavailable
from manager_world import BOUND

from shmtensor.channel import keys

pytestmark = [
    pytest.mark.ray,
    pytest.mark.any_python,
    pytest.mark.timeout(300),
    pytest.mark.filterwarnings("default"),
    pytest.mark.skipif(bool(unavailable()), reason=unavailable()),
]

Start = Callable[..., "subprocess.Popen[str]"]
RAY = f"{sys.executable} -m ray.scripts.scripts"
OWN_FILES = "mount -t tmpfs tmpfs /tmp/ray && "
QUIET = ">/dev/null 2>&1"
SOURCE = f"""
import json, sys
import shmtensor as st
from shmtensor.integrations.ray.fetching import Server, keys_directory
from shmtensor.integrations.ray.places import place_of
tensor = st.arange(1_000_000, dtype=st.float32)[::2]
place, block = place_of(tensor)
print(json.dumps([Server(keys_directory(), "{ADDRESSES[0]}").address, place.document()]), flush=True)
sys.stdin.read()
"""
RECEIVER = """
import json, sys
from shmtensor import errors
from shmtensor.integrations.ray.fetching import Address, Connection
from shmtensor.integrations.ray.places import Place
address, place = json.loads(sys.argv[1])
try:
    with Connection(Address(*address)) as connection:
        tensor = connection.fetch(Place.of_document(place))
    print(tensor.tolist() == [float(n) for n in range(0, 1_000_000, 2)], tensor.is_shared())
except errors.ShmTensorError as problem:
    print(type(problem).__name__, problem)
"""
DRIVER = f"""
import json, sys
import ray, shmtensor as st
from shmtensor.integrations.ray import handle, register
register()

@ray.remote(num_cpus=0, enable_tensor_transport=True)
class Part:
    @ray.method(tensor_transport="shmtensor")
    def give(self, size):
        return st.arange(size, dtype=st.float32)

    def total(self, tensor):
        return [tensor.sum().item(), tensor.is_shared(), ray.util.get_node_ip_address()]

    def lend(self, other, size):
        kept = st.arange(size, dtype=st.float32)
        return ray.get(other.total.remote(handle(kept)))

ray.init(address="{ADDRESSES[0]}:6379", log_to_driver=False)
here, there = (Part.options(resources={{name: 0.01}}).remote() for name in ("first", "second"))
print(json.dumps([
    ray.get(there.total.remote(here.give.remote(1000))),
    ray.get(here.total.remote(there.give.remote(2000))),
    ray.get(here.lend.remote(there, 1_000_000)),
]), flush=True)
ray.shutdown()
"""


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start a command on one of two hosts that know each other's keys; what is left of it is killed."""
    keys.make_all(tmp_path, "01")
    network = BadNetwork(Weather())
    folder = tempfile.mkdtemp(prefix="shmt-", dir="/tmp")  # the path of a socket has a limit
    processes = []

    def start_one(host: int, *command: str, **env: str) -> subprocess.Popen[str]:
        own = {
            "SHMTENSOR_GROUP": f"host{host}",
            "SHMTENSOR_RUNTIME_DIR": folder,
            "SHMTENSOR_RAY_KEYS": str(tmp_path / str(host)),
            "RAY_AUTH_MODE": "disabled",
        }
        process = subprocess.Popen(
            [*network.prefix(host), *command],
            env={**os.environ, **own, **env},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        processes.append(process)
        return process

    try:
        yield start_one
    finally:
        for process in processes:
            process.kill()  # and so its namespace
            process.communicate()
        network.close()
        shutil.rmtree(folder, ignore_errors=True)


def received(start: Start, where: str, **env: str) -> str:
    """What the second host says of a tensor of the first one."""
    return start(1, sys.executable, "-W", "ignore", "-c", RECEIVER, where, **env).communicate(timeout=BOUND)[0]


def test_a_tensor_is_fetched_by_who_has_the_keys(start: Start, tmp_path: Path) -> None:
    source = start(0, sys.executable, "-W", "ignore", "-c", SOURCE)
    assert source.stdout is not None
    where = source.stdout.readline()
    address = json.loads(where)[0]
    assert address[4] == ADDRESSES[0]
    assert received(start, where).split() == ["True", "True"]
    assert received(start, where, SHMTENSOR_RAY_KEYS="").startswith("NotSupported")
    stranger = tmp_path / "stranger"
    keys.make(stranger)
    shutil.copy(tmp_path / "0" / keys.CERTIFICATE, stranger / keys.PEERS / "0.pem")
    text = received(start, where, SHMTENSOR_RAY_KEYS=str(stranger))
    assert text.startswith("SegmentLost"), text
    assert received(start, where).split() == ["True", "True"]  # and it goes on


def test_actors_of_two_hosts_pass_tensors(start: Start) -> None:
    Path("/tmp/ray").mkdir(exist_ok=True)  # where each host has files of its own
    common = "--object-store-memory=100000000 --disable-usage-stats --num-cpus=2"
    head = f"{RAY} start --head --node-ip-address={ADDRESSES[0]} --port=6379 --include-dashboard=false {common}"
    first = f"""{OWN_FILES}{head} --resources='{{"first":1}}' {QUIET} && exec "$0" -W ignore -c "$1" """
    join = f"{RAY} start --address={ADDRESSES[0]}:6379 --node-ip-address={ADDRESSES[1]} {common}"
    second = f"""{OWN_FILES}until {join} --resources='{{"second":1}}' --block {QUIET}; do sleep 0.2; done"""
    driver = start(0, "sh", "-c", first, sys.executable, DRIVER)
    start(1, "sh", "-c", second)
    output, _ = driver.communicate(timeout=12 * BOUND)
    assert driver.returncode == 0
    first_to_second, second_to_first, lent = json.loads(output)
    assert first_to_second == [sum(range(1000)), True, ADDRESSES[1]]
    assert second_to_first == [sum(range(2000)), True, ADDRESSES[0]]
    assert lent[1:] == [True, ADDRESSES[1]] and lent[0] == pytest.approx(sum(range(1_000_000)), rel=1e-4)
