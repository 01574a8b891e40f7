"""A stand-in for CuPy whose devices are host memory: NumPy computes, under CuPy's rules.

Its arrays are not NumPy arrays, and implicit conversions in either direction raise TypeError, as in CuPy. It has
exactly the names that CuPy has (names.txt). Device memory that a driver has mapped at an address
(tests/support/host_driver.py) is used through `MemoryPointer`, as with CuPy.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as _np

from . import cuda
from .cuda import _Memory

__version__ = "14.2.0"
newaxis = None

_NAMES: dict[str, set[str]] = {}
for _line in (Path(__file__).parent / "names.txt").read_text().splitlines():
    if _line.endswith(":"):
        _part = _NAMES.setdefault(_line[:-1], set())
    elif not _line.startswith("#"):
        _part.update(_line.split())


_found: dict[str, Any] = {}


class _Flags:
    def __init__(self, flags: Any, owns: bool) -> None:
        self.c_contiguous, self.f_contiguous, self.owndata = flags.c_contiguous, flags.f_contiguous, owns
        self.forc = flags.forc

    def __getitem__(self, name: str) -> bool:
        return bool(getattr(self, name.lower()))


class _Kept(_np.ndarray):
    """The memory of another library's array, which its capsule keeps alive."""

    memory: Any = None


class ndarray:  # noqa: N801 - CuPy's name
    """An array on a device."""

    __array_priority__ = 100

    def __init__(
        self, shape: Any, dtype: Any = float, memptr: Any = None, strides: Any = None, order: str = "C"
    ) -> None:
        dtype = _np.dtype(dtype)
        if memptr is None:
            self._set(_np.empty(shape, dtype, order), None, None)
            return
        whole = memptr.mem._bytes()
        self._set(_np.ndarray(shape, dtype, whole, memptr.ptr - memptr.mem.ptr, strides), memptr.mem, None)

    def _set(self, array: Any, memory: Any, base: Any) -> None:
        self._a, self.base = array, base
        self._mem = _Memory(array) if memory is None else memory

    @property
    def data(self) -> Any:
        pointer = cuda.MemoryPointer(self._mem, 0)
        pointer.ptr = self._a.__array_interface__["data"][0]
        return pointer

    @property
    def device(self) -> Any:
        return cuda.Device(self._mem.device_id)

    @property
    def flags(self) -> Any:
        return _Flags(self._a.flags, self.base is None)

    shape = property(lambda self: self._a.shape, lambda self, shape: setattr(self._a, "shape", shape))
    strides, dtype, size, ndim, itemsize, nbytes = (
        property(lambda self, name=name: getattr(self._a, name))
        for name in ("strides", "dtype", "size", "ndim", "itemsize", "nbytes")
    )

    def get(self, stream: Any = None, order: str = "C", out: Any = None, blocking: bool = True) -> Any:
        cuda._drain()
        return self._a.copy(order)

    def set(self, values: Any, stream: Any = None) -> None:
        if not isinstance(values, _np.ndarray):
            raise TypeError("Only numpy.ndarray can be set to cupy.ndarray")
        if values.dtype != self.dtype or values.shape != self.shape:
            raise (TypeError if values.dtype != self.dtype else ValueError)("Shape or dtype mismatch")
        self._a[...] = values

    def item(self) -> Any:
        if self.size != 1:
            raise ValueError("can only convert an array of size 1 to a Python scalar")
        return self.get().item()

    def tolist(self) -> Any:
        return self.get().tolist()

    def tobytes(self, order: str = "C") -> bytes:
        return bytes(self.get().tobytes(order))

    def copy(self, order: str = "C") -> Any:
        return _wrap(self._a.copy(order))

    def astype(self, dtype: Any, order: str = "K", casting: Any = None, subok: Any = None, copy: bool = True) -> Any:
        if not copy and self.dtype == dtype:
            return self
        with _np.errstate(all="ignore"):
            return _wrap(self._a.astype(dtype, order))

    def view(self, dtype: Any = None) -> Any:
        return _wrap(self._a.view() if dtype is None else self._a.view(dtype), self)

    def fill(self, value: Any) -> None:
        self._a.fill(_unwrap(value, "fill"))

    def scatter_add(self, key: Any, value: Any) -> None:
        _np.add.at(self._a, _unwrap(key, "scatter_add"), _unwrap(value, "scatter_add"))

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        raise TypeError(
            "Implicit conversion to a NumPy array is not allowed. Please use `.get()` to construct a NumPy array "
            "explicitly."
        )

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        if ufunc.__name__ not in _NAMES["cupy"]:
            return NotImplemented
        if method not in ("__call__", "reduce", "at", "reduceat", "accumulate"):
            return NotImplemented
        if method != "__call__" and ufunc.__name__ not in ("add", "multiply"):
            raise NotImplementedError(f"ufunc {ufunc.__name__}.{method} is not implemented")
        return _call(getattr(ufunc, method), *inputs, **kwargs)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        path = [*function.__module__.split(".")[1:], function.__name__]
        part = sys.modules[__name__]
        for name in path:
            part = getattr(part, name, None)
            if part is None:
                return NotImplemented
        return part(*args, **kwargs)

    def __getitem__(self, key: Any) -> Any:
        return _wrap(self._a[_index(key)], self)

    def __setitem__(self, key: Any, value: Any) -> None:
        if isinstance(value, _np.ndarray) and value.ndim:
            raise TypeError("Unsupported type <class 'numpy.ndarray'>")
        self._a[_index(key)] = _unwrap(value, "setitem")

    def __len__(self) -> int:
        return len(self._a)

    def __iter__(self) -> Any:
        return (self[i] for i in range(len(self)))

    def __bool__(self) -> bool:
        return bool(self._a)

    def __int__(self) -> int:
        return int(self.get())

    def __float__(self) -> float:
        return float(self.get())

    def __index__(self) -> int:
        return self.get().__index__()

    def __complex__(self) -> complex:
        return complex(self.get())

    def __dlpack__(self, stream: Any = None, **how: Any) -> Any:
        kept = self._a.view(_Kept)
        kept.memory = self._mem
        return kept.__dlpack__()

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, self._mem.device_id

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name not in _NAMES["ndarray"]:
            raise AttributeError(f"'cupy.ndarray' object has no attribute {name!r}")
        found = getattr(self._a, name)
        if not callable(found):
            return _wrap(found, self)

        def method(*args: Any, **kwargs: Any) -> Any:
            return _wrap(found(*_unwrap(args, name), **_unwrap(kwargs, name)), self)

        return method

    __hash__ = None  # type: ignore[assignment]


def _operator(name: str) -> None:
    def operate(self: Any, *others: Any) -> Any:
        if any(isinstance(one, _np.ndarray) for one in others):
            return NotImplemented if all(one.ndim for one in others) else _call(getattr(self._a, name), *others)
        if not all(isinstance(one, ndarray | int | float | complex | bool | _np.generic) for one in others):
            return NotImplemented
        made = getattr(self._a, name)(*_unwrap(others, name))
        return self if made is self._a else _wrap(made)

    setattr(ndarray, name, operate)


for _name in [
    "add",
    "sub",
    "mul",
    "truediv",
    "floordiv",
    "mod",
    "pow",
    "matmul",
    "and",
    "or",
    "xor",
    "lshift",
    "rshift",
]:
    for _kind in ("", "r", "i"):
        if not (_kind and _name == "matmul"):
            _operator(f"__{_kind}{_name}__")
for _name in ["lt", "le", "eq", "ne", "gt", "ge", "neg", "pos", "abs", "invert"]:
    _operator(f"__{_name}__")


def _index(key: Any) -> Any:
    parts = key if isinstance(key, tuple) else (key,)
    if any(isinstance(one, _np.ndarray) for one in parts):
        raise IndexError("an index has arrays of NumPy")
    return _unwrap(key, "index")


def _unwrap(value: Any, doing: str) -> Any:
    if isinstance(value, ndarray):
        return value._a
    if isinstance(value, _np.ndarray):
        raise TypeError(f"Unsupported type {type(value)} ({doing})")
    if isinstance(value, tuple | list):
        made = [_unwrap(one, doing) for one in value]
        return type(value)(made) if not hasattr(value, "_fields") else type(value)(*made)
    if isinstance(value, dict):
        return {name: _unwrap(one, doing) for name, one in value.items()}
    return value


def _wrap(value: Any, of: ndarray | None = None) -> Any:
    if isinstance(value, tuple):
        made = [_wrap(one, of) for one in value]
        return type(value)(*made) if hasattr(value, "_fields") else tuple(made)
    if isinstance(value, list):
        return [_wrap(one, of) for one in value]
    if isinstance(value, _np.generic):
        value = _np.asarray(value)
    if not isinstance(value, _np.ndarray):
        return value
    if not value.flags.writeable and value.base is not None:  # CuPy has no read-only arrays
        with suppress(ValueError):
            value.flags.writeable = True
    array = object.__new__(ndarray)
    if of is not None and _np.may_share_memory(value, of._a) and value.base is not None:
        array._set(value, of._mem, of if of.base is None else of.base)
    else:
        array._set(value, None, None)
    return array


def _call(function: Any, *args: Any, **kwargs: Any) -> Any:
    """Call a function of NumPy with arrays of this module."""
    name = getattr(function, "__name__", "a function")
    given = [one for one in (*args, *kwargs.values()) if isinstance(one, ndarray)]
    out = kwargs.get("out")
    with _np.errstate(all="ignore"):
        made = function(*_unwrap(args, name), **_unwrap(kwargs, name))
    if out is not None:
        return out[0] if isinstance(out, tuple) and len(out) == 1 else out
    found = _wrap(made)
    if isinstance(found, ndarray):
        for one in given:
            if found._a is one._a:
                return one
            if found._a.base is not None and _np.may_share_memory(found._a, one._a):
                return _wrap(found._a, one)
    if isinstance(found, list | tuple) and given:
        return type(found)([_wrap(one._a, given[0]) if isinstance(one, ndarray) else one for one in found])
    return found


def _function(module: Any, name: str) -> Any:
    plain = getattr(module, name)
    if isinstance(plain, type) or not callable(plain):
        return plain

    def function(*args: Any, **kwargs: Any) -> Any:
        return _call(plain, *args, **kwargs)

    function.__name__ = name
    if isinstance(plain, _np.ufunc):
        for method in ("reduce", "at", "reduceat", "accumulate"):
            setattr(function, method, partial(_call_method, plain, method))
    return function


def _call_method(ufunc: Any, method: str, *args: Any, **kwargs: Any) -> Any:
    return _call(getattr(ufunc, method), *args, **kwargs)


def argsort(a: Any, axis: int = -1, kind: Any = None) -> Any:
    if kind not in (None, "stable"):
        raise ValueError(f"unsupported kind: {kind}")
    return _call(_np.argsort, a, axis, kind="stable")


def asnumpy(a: Any, stream: Any = None, order: str = "C", out: Any = None, *, blocking: bool = True) -> Any:
    return a.get() if isinstance(a, ndarray) else _np.asarray(a)


def array(obj: Any, dtype: Any = None, copy: Any = True, order: str = "K", subok: bool = False, ndmin: int = 0) -> Any:
    if isinstance(obj, list | tuple) and any(isinstance(one, ndarray) for one in obj):
        obj = [_unwrap(one, "array") for one in obj]
    return _wrap(_np.array(obj._a if isinstance(obj, ndarray) else obj, dtype, copy=True, ndmin=ndmin))


def asarray(a: Any, dtype: Any = None, order: Any = None, *, blocking: bool = False) -> Any:
    return a if isinstance(a, ndarray) and dtype in (None, a.dtype) else array(a, dtype)


ascontiguousarray = asanyarray = asarray


def copyto(dst: Any, src: Any, casting: str = "same_kind", where: Any = None) -> None:
    if not isinstance(dst, ndarray):
        raise TypeError("dst must be cupy.ndarray")
    how = {} if where is None else {"where": _unwrap(where, "copyto")}
    with _np.errstate(all="ignore"):
        _np.copyto(dst._a, _unwrap(src, "copyto"), casting=casting, **how)


def from_dlpack(array: Any, **how: Any) -> Any:
    if isinstance(array, ndarray):
        return _wrap(array._a[...], array)
    return _wrap(_np.from_dlpack(array))


def get_default_memory_pool() -> Any:
    return cuda._POOL


def __getattr__(name: str) -> Any:
    if name.startswith("_") or name not in _NAMES["cupy"] or not hasattr(_np, name):
        raise AttributeError(f"module 'cupy' has no attribute {name!r}")
    return _found.setdefault(name, _function(_np, name))  # not a global: `any` here is Python's


def _module(name: str, plain: Any, names: set[str]) -> None:
    made = ModuleType(f"cupy.{name}")

    def find(wanted: str) -> Any:
        if wanted.startswith("_") or wanted not in names or not hasattr(plain, wanted):
            raise AttributeError(f"module 'cupy.{name}' has no attribute {wanted!r}")
        return _function(plain, wanted)

    made.__getattr__ = find  # type: ignore[method-assign]
    globals()[name] = sys.modules[f"cupy.{name}"] = made


_module("linalg", _np.linalg, _NAMES["linalg"])
_module("fft", _np.fft, _NAMES["fft"])
_module("lib", None, set())
_tricks = ModuleType("cupy.lib.stride_tricks")
_tricks.as_strided = lambda x, shape=None, strides=None: _wrap(  # type: ignore[attr-defined]
    _np.lib.stride_tricks.as_strided(x._a, shape, strides), x
)
_tricks.sliding_window_view = lambda x, *args, **how: _wrap(  # type: ignore[attr-defined]
    _np.lib.stride_tricks.sliding_window_view(x._a, *args, **how), x
)
lib.stride_tricks = sys.modules["cupy.lib.stride_tricks"] = _tricks  # type: ignore[name-defined]  # noqa: F821
