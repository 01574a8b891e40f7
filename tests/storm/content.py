"""Messages whose every byte follows from their number, so that any process can check one."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

import shmtensor

KINDS: Final = 6
MANY: Final = 3
"""The kind with many tensors."""
SIZES: Final = (1, 50, 1000, 20_000)
"""Elements of 8 bytes in most messages; now and then LARGE."""
LARGE: Final = 200_000
_MIX: Final = np.uint64(0x9E3779B97F4A7C15)
_STEPS: Final = np.arange(LARGE + 64, dtype=np.uint64) * np.uint64(0xD1342543DE82EF95)
_LISTED: Final = 1000
"""Most tensors in one message: so many holds take a ring's lock long enough to be killed in there."""


def pattern(number: int, size: int) -> NDArray[np.int64]:
    """`size` values of 8 bytes that no other number has."""
    with np.errstate(over="ignore"):
        return (_STEPS[:size] ^ (np.uint64(number) * _MIX)).view(np.int64)


def _shared(number: int, size: int) -> Any:
    tensor = shmtensor.empty(size, dtype=shmtensor.int64, shared=True)
    tensor.numpy()[:] = pattern(number, size)
    return tensor


def make(number: int, kind: int, size: int) -> Any:
    """The content of message `number`: every way that data takes."""
    if kind == 0:
        return _shared(number, size)
    if kind == 1:  # an array, inline or in a block
        return pattern(number, size)
    if kind == 2:  # a body, long ones in a block
        return pattern(number, size).tobytes()
    if kind == MANY:  # many holds: long in the moving
        many = min(size, _LISTED)
        tensors = [shmtensor.empty(8, dtype=shmtensor.int64, shared=True) for _ in range(many)]
        for tensor, values in zip(tensors, pattern(number, 8 * many).reshape(-1, 8), strict=True):
            tensor.numpy()[:] = values
        return tensors
    if kind == 4:  # through pickle, one tensor twice
        tensor = _shared(number, size)
        return {"first": tensor, "again": tensor, "array": pattern(number, size % 100), "kinds": {kind}}
    return shmtensor.from_numpy(pattern(number, size).copy())  # moved to shared memory when it is sent


def wrong_bytes(number: int, kind: int, size: int, value: Any) -> int:
    """How many bytes of `value` are not those of message `number`."""
    if kind == 2:
        return _differing(np.frombuffer(value, np.int64), number, size)
    if kind == MANY:
        return _differing(np.concatenate([item.numpy() for item in value]), number, 8 * min(size, _LISTED))
    if kind == 4:
        return int(
            _differing(value["first"].numpy(), number, size)
            + _differing(value["again"].numpy(), number, size)
            + _differing(value["array"], number, size % 100)
            + (value["kinds"] != {kind})
        )
    return _differing(value if kind == 1 else value.numpy(), number, size)


def _differing(found: NDArray[Any], number: int, size: int) -> int:
    expected = pattern(number, size)
    if found.shape != expected.shape:
        return expected.nbytes
    return int(np.count_nonzero(found.view(np.uint8) != expected.view(np.uint8)))
