"""Every error that shmtensor raises of its own, in one tree, named by cause.

Each class is also a subclass of the builtin that a caller would expect, so `except MemoryError` or
`except ConnectionError` written for another library keeps working. The message says what was asked, what was found
and what to do.
"""

from __future__ import annotations

from collections.abc import Callable

observer: Callable[[ShmTensorError], None] | None = None
"""Is told of each error before it is raised (shmtensor.hooks); None: nobody wants to know."""


def type_name(value: object) -> str:
    """The class of a value as messages name it: with its module, unless that is Python's own or ours."""
    kind = type(value)
    ours = kind.__module__.partition(".")[0] in ("builtins", "shmtensor")
    return kind.__qualname__ if ours else f"{kind.__module__}.{kind.__qualname__}"


def tensor_advice(value: object) -> str:
    """What makes a tensor of a value that is not one, for messages."""
    foreign = hasattr(value, "__dlpack__") and not type(value).__module__.startswith("numpy")
    return f"use shmtensor.{'from_dlpack(x)' if foreign else 'asarray(values)'}"


class ShmTensorError(Exception):
    """Base of all errors raised by shmtensor itself."""

    def __init__(self, *args: object) -> None:
        super().__init__(*args)
        if observer is not None:
            observer(self)


class InvalidArgument(ShmTensorError, ValueError):
    """A value that cannot be used: a negative size, a malformed handle, a shape that does not fit."""


class IndexOutOfRange(InvalidArgument, IndexError):
    """An element or axis that is not there; the message names the index and the range."""


class DTypeError(ShmTensorError, TypeError):
    """Data of another type than was asked for; the message names both types."""


class LayoutError(ShmTensorError, ValueError):
    """An array whose memory cannot be used without a copy: not contiguous, read-only, or overlapping."""


class MissingExtra(ShmTensorError, ImportError):
    """A package that is not installed is needed; the message names the extra that brings it."""


class OutOfMemory(ShmTensorError, MemoryError):
    """No memory for the request; the message names its size, what is free, the limit hit and the largest holders."""


class MappingError(ShmTensorError, OSError):
    """A file, shared-memory object or descriptor could not be opened or mapped; `errno` says why."""


class DeviceUnavailable(ShmTensorError, RuntimeError):
    """What was asked needs a device (a GPU, say) or its driver, and this machine or installation has none."""


class NotSupported(ShmTensorError, NotImplementedError):
    """Something that this version of shmtensor does not do, though its interface has a place for it."""


class StaleHandle(ShmTensorError, LookupError):
    """The handle was valid once: the block it named has been freed (and may have been reused)."""


class UnknownHandle(ShmTensorError, LookupError):
    """The manager that was asked has never given out this handle, or gave it up with the segment behind it."""


class NameTaken(ShmTensorError, FileExistsError):
    """The name stands for another object that is in use; open that one, or choose another name."""


class SegmentLost(ShmTensorError, ConnectionError):
    """The memory is gone: its sender and its manager ended before this process mapped it, or somebody truncated it."""


class ManagerError(ShmTensorError, ConnectionError):
    """The manager cannot be reached, refused this client, or broke the connection."""


class ManagerUnavailable(ManagerError):
    """No manager runs at the address, or none can be started here; the message says what was refused."""


class ProtocolError(ManagerError):
    """The other side speaks another protocol version, or sent what the protocol does not allow."""


class ManagerTimeout(ManagerError, TimeoutError):
    """The manager is there but did not answer within the bound."""


class QuotaExceeded(OutOfMemory):
    """A limit of this system (clients, segments, bytes, table entries) was reached; the message names it."""


class ForkedWithoutHold(ShmTensorError, RuntimeError):
    """This process was cloned without the fork hooks, so its shared tensors are not protected; use fork or spawn."""


class LockTimeout(ShmTensorError, TimeoutError):
    """The books of a segment stayed locked by a live process (stopped, say) for longer than the bound."""


class MessageTooLarge(ShmTensorError, ValueError):
    """A message that this queue will never take: larger than its `maxbytes`, or than any queue holds."""


class QueueDamaged(ShmTensorError, RuntimeError):
    """What lies in a queue's shared memory is no queue, or no message: something wrote over it."""


class MessageDamaged(ShmTensorError, ValueError):
    """What arrived is no message of this version: it is cut off, or something wrote over it."""


class FileDamaged(ShmTensorError, ValueError):
    """A file is not what it should be: text where a number belongs, a header that lies, a size beyond its end."""


class EndOfFile(FileDamaged, EOFError):
    """A file ends before all that was asked for."""


class WorkerDied(ShmTensorError, ChildProcessError):
    """A worker of a Pool was killed, or exited, with a task in its hands. The pool goes on without that task.

    Attributes:
        pid: its process id. exit_code: its exit status, or minus the signal's number.
        signal_name: "SIGKILL", say; None without a signal.
    """

    def __init__(self, message: str, pid: int, exit_code: int, signal_name: str | None = None) -> None:
        self.pid = pid
        self.exit_code = exit_code
        self.signal_name = signal_name
        super().__init__(message)

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (str(self), self.pid, self.exit_code, self.signal_name)


class ForeignReader(ShmTensorError, RuntimeError):
    """A reader of a broadcast in a process that did not make it: a fork's child calls `reader()` for one of its own."""


class StallWarning(RuntimeWarning):
    """A process keeps the lock of a queue (it may be stopped); the message names its pid. The wait goes on."""
