"""A GPU for tests, in each of their processes: the real one, or host memory with the stand-in for CuPy.

A process with the stand-in keeps it, so tests that use this module run in separate processes
(tests/gpu/test_on_device.py).
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import sys
from pathlib import Path
from typing import Any

from host_driver import HostDriver

from shmtensor.gpu import driver, order
from shmtensor.manager import client

_made: HostDriver | None = None
SPIN = """
extern "C" __global__ void spin(unsigned long long nanoseconds) {
    unsigned long long begin, now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(begin));
    do asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now)); while (now - begin < nanoseconds);
}
"""


def install() -> HostDriver | None:
    """Set up a GPU in this process. Returns the driver over host memory, or None if there is a real GPU."""
    global _made
    if _made is None and driver.status():
        sys.path.insert(0, str(Path(__file__).parent / "host_cupy"))
        _made = HostDriver(devices=2)
        driver.use(_made)
    return _made


def hold(seconds: float = 0.0) -> None:
    """Keep the current stream's work undone: for about `seconds` on a real GPU, on host memory until `release`."""
    made = install()
    if made is not None:
        made.hold()
        return
    import cupy

    nanoseconds = max(int(seconds * 1e9), 5_000_000)
    cupy.RawKernel(SPIN, "spin")((1,), (1,), (cupy.uint64(nanoseconds),))


def release() -> None:
    """End a `hold`; on a real GPU, wait for it."""
    made = install()
    if made is not None:
        made.release()
    else:
        driver.current().synchronize(0)


def held() -> int:
    """Blocks of the device that this process holds, once its streams have passed."""
    driver.current().synchronize(0)
    gc.collect()
    for _, one in order._orders.values():
        one.settle()
    return client.default().native.device_stats(0).blocks


def as_cupy(tensor: Any) -> Any:
    """A CuPy array over the memory of a torch tensor of bytes, without streams. For the stand-in."""
    import cupy

    return cupy.from_dlpack(tensor)


if getattr(multiprocessing.current_process(), "_inheriting", False):  # a spawned process, whose arguments come next
    install()

# -- functions of other processes --------------------------------------------------------------------------------------


def double(jobs: Any, done: Any) -> None:
    """Double each received tensor in place, and send it on."""
    install()
    for value in iter(jobs.get, None):
        value.mul_(2)
        done.put(value)


def echo(jobs: Any, done: Any) -> None:
    """Send back each received tensor."""
    install()
    for value in iter(jobs.get, None):
        done.put(value)
        del value


def sums(jobs: Any, done: Any) -> None:
    """Send the sum of each received tensor, and drop it."""
    install()
    for value in iter(jobs.get, None):
        done.put(float(value.sum()))
        del value


def produce_and_exit(results: Any) -> None:
    """Send a tensor, and end."""
    install()
    import shmtensor as st

    results.put(st.arange(1000, dtype=st.float32, device="cuda"))


def produce_and_wait(results: Any) -> None:
    """Send a tensor, and stay until killed."""
    install()
    import shmtensor as st

    results.put(st.arange(1000, dtype=st.float32, device="cuda"))
    signal.pause()


def produce_unfinished(results: Any) -> None:
    """Send a tensor whose content is not computed yet, and stay until killed."""
    made = install()
    import shmtensor as st

    x = st.zeros(1 << 20, device="cuda").share_memory_()
    x += 0  # the first use of a kernel waits for the device
    st.cuda.synchronize()
    hold(20)
    x += 7
    results.put(x)
    signal.pause()
    del made


def take_without(jobs: Any, done: Any, devices: int, refused: str) -> None:
    """Report why a tensor cannot be received by a process that sees fewer devices, or is refused a function."""
    made = install()
    assert made is not None
    made.devices = devices
    made.refuses.update({refused: 800} if refused else {})
    try:
        jobs.get()
    except Exception as problem:
        done.put(str(problem))
    else:
        done.put("nothing was refused")


def take_and_wait(jobs: Any, done: Any) -> None:
    """Take a tensor, keep it, and stay until killed."""
    install()
    value = jobs.get()
    done.put(os.getpid())
    signal.pause()
    del value


def train(weights: Any, steps: int) -> None:
    """Steps of Hogwild on shared weights."""
    install()
    import shmtensor as st

    generator = st.random.Generator().manual_seed(os.getpid())
    for _ in range(steps):
        x = st.randn(64, 8, generator=generator).to("cuda")
        w = weights.detach().requires_grad_()
        loss = ((x @ w - x.sum(1, keepdim=True)) ** 2).mean()
        loss.backward()
        weights.sub_(0.05 * w.grad)
    st.cuda.synchronize()
