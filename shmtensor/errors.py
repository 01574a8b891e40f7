"""The exceptions that shmtensor raises, in one tree, named by cause.

Each class is also a subclass of the builtin that a caller would expect, so `except MemoryError` or
`except ConnectionError` written for another library keeps working. The message says what was asked, what was found
and what to do.
"""

from __future__ import annotations

from collections.abc import Callable

observer: Callable[[ShmTensorError], None] | None = None
"""Called with each error before it is raised (shmtensor.hooks); None: no hook."""


def type_name(value: object) -> str:
    """Return the name of a value's class for messages: with its module, unless it is a builtin or ours."""
    kind = type(value)
    ours = kind.__module__.partition(".")[0] in ("builtins", "shmtensor")
    return kind.__qualname__ if ours else f"{kind.__module__}.{kind.__qualname__}"


def tensor_advice(value: object) -> str:
    """Return advice for messages: how to convert a value to a tensor."""
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
    """An element or axis that does not exist; the message names the index and the range."""


class StateDictMismatch(InvalidArgument, RuntimeError):
    """A state that does not fit a module: other keys or shapes; the message names them all."""


class SampleMismatch(InvalidArgument, RuntimeError):
    """Samples of unequal shape, length or keys, or integers beyond int64, cannot be in a batch; the message names them.

    Attributes:
        positions: which samples of the batch it speaks of.
    """

    def __init__(self, message: str, positions: tuple[int, ...] = ()) -> None:
        super().__init__(message)
        self.positions = positions

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (*self.args, self.positions)


class DTypeError(ShmTensorError, TypeError):
    """Data of another type than required; the message names both types."""


class LayoutError(ShmTensorError, ValueError):
    """An array whose memory cannot be used without a copy: not contiguous, read-only, or overlapping."""


class MissingExtra(ShmTensorError, ImportError):
    """A required package is not installed; the message names the extra that provides it."""


class OutOfMemory(ShmTensorError, MemoryError):
    """No memory for a request; the message has its size, what is free, the limit hit and the largest holders."""


class MappingError(ShmTensorError, OSError):
    """A file, shared-memory object or descriptor could not be opened or mapped; `errno` has the reason."""


class GradientError(ShmTensorError, RuntimeError):
    """A gradient cannot be recorded or computed; the message names the operation and what to do."""


class DeviceUnavailable(ShmTensorError, RuntimeError):
    """The operation needs a device such as a GPU, or its driver, which is not available."""


class NotSupported(ShmTensorError, NotImplementedError):
    """An operation that is part of the interface but not implemented in this version."""


class StaleHandle(ShmTensorError, LookupError):
    """The handle was valid, but its block has been freed (and its memory may have been reused)."""


class UnknownHandle(ShmTensorError, LookupError):
    """The manager does not know the handle: it never gave it out, or has released it with its segment."""


class NameTaken(ShmTensorError, FileExistsError):
    """The name is bound to another object; open that one, or choose another name."""


class SegmentLost(ShmTensorError, ConnectionError):
    """The memory is lost: its sender and manager ended before this process mapped it, or it was truncated."""


class OwnerDied(ShmTensorError, ConnectionError):
    """A tensor on a GPU never arrived whole: its sender was killed before the GPU had done the work that fills it."""


class ConnectionLost(ShmTensorError, ConnectionError):
    """The other end of a channel ended, cannot be reached, or refused this one; the message has the reason."""


class ManagerError(ShmTensorError, ConnectionError):
    """The manager cannot be reached, refused this client, or broke the connection."""


class ManagerUnavailable(ManagerError):
    """No manager runs at the address, or none can be started; the message has the reason."""


class ProtocolError(ManagerError):
    """The peer has another protocol version, or violated the protocol."""


class ManagerTimeout(ManagerError, TimeoutError):
    """The manager is running but did not answer in time."""


class QuotaExceeded(OutOfMemory):
    """A limit of clients, segments, bytes or table entries was reached; the message names it."""


class ClientUnavailable(ShmTensorError, RuntimeError):
    """This process cannot use shared memory: it was cloned without the fork hooks, or its fork was not registered."""


class LockTimeout(ShmTensorError, TimeoutError):
    """A live process, for example a stopped one, kept a segment's metadata locked for too long."""


class DeliveryTimeout(ShmTensorError, TimeoutError):
    """What was put into a channel was not delivered in the time that `flush` was given; nothing of it is lost."""


class MessageTooLarge(ShmTensorError, ValueError):
    """A message larger than the queue's `maxbytes`, or than any queue can hold."""


class QueueDamaged(ShmTensorError, RuntimeError):
    """A queue's shared memory is damaged: something wrote over it."""


class MessageDamaged(ShmTensorError, ValueError):
    """Received data is not a message of this version: it is truncated or damaged."""


class FileDamaged(ShmTensorError, ValueError):
    """A file is damaged: text in place of a number, an inconsistent header, a size beyond its end."""


class EndOfFile(FileDamaged, EOFError):
    """A file ends before the requested data."""


class WorkerDied(ShmTensorError, ChildProcessError):
    """A worker of a Pool was killed, or exited, during a task. The pool continues without that task.

    Attributes:
        pid: process id of the worker.
        exit_code: its exit status, or the negative signal number.
        signal_name: for example "SIGKILL"; None without a signal.
    """

    def __init__(self, message: str, pid: int, exit_code: int, signal_name: str | None = None) -> None:
        self.pid = pid
        self.exit_code = exit_code
        self.signal_name = signal_name
        super().__init__(message)

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (str(self), self.pid, self.exit_code, self.signal_name)


class SampleFailed(ShmTensorError, RuntimeError):
    """A worker could not load a sample, and its exception cannot be raised here; the message has the traceback.

    An exception that is not an Exception, such as SystemExit, is not raised here, as it would end the program.
    Also raised by an iterator of a DataLoader that an error has ended before its last batch.
    """


class LoaderTimeout(ShmTensorError, TimeoutError):
    """A batch did not come in the time that a DataLoader was given; the message names the workers that have it."""


class TaskFailed(ShmTensorError, RuntimeError):
    """Code that a worker of a WorkerPool ran raised what cannot be raised here; the message has the traceback.

    An exception that is not an Exception, such as SystemExit, is not raised here, as it would end the program.
    """


class TaskTimeout(ShmTensorError, TimeoutError):
    """No result came in the time that a WorkerPool was given; the message names the workers and what they run."""


class ForeignReader(ShmTensorError, RuntimeError):
    """A reader of a broadcast was used in a process that did not create it; call `reader()` there."""


class StallWarning(RuntimeWarning):
    """A process, possibly stopped, keeps a queue's lock; the message has its pid. The wait continues."""
