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
    """Base of all errors raised by shmtensor itself.

    Catch it to handle them all; programs rarely see one of this class itself. The message says what to do.
    """

    def __init__(self, *args: object) -> None:
        super().__init__(*args)
        if observer is not None:
            observer(self)


class InvalidArgument(ShmTensorError, ValueError):
    """A value that cannot be used: a negative size, a malformed handle, a shape that does not fit.

    Pass a value as the message requires it. Nothing was changed.
    """


class IndexOutOfRange(InvalidArgument, IndexError):
    """An element or axis that does not exist; the message names the index and the range.

    Use an index in this range; negative ones count from the end.
    """


class StateDictMismatch(InvalidArgument, RuntimeError):
    """A state that does not fit a module: other keys or shapes; the message names them all.

    Load it into a module that is made with the same arguments. With `strict=False`, keys may differ, but not shapes.
    """


class SampleError(ShmTensorError):
    """Samples that cannot be in one batch; it is a `SampleMismatch` or a `SampleTypeError`.

    Change the samples in the dataset or its transform, or pass a `collate_fn` that does.

    Attributes:
        positions: indices of the affected samples in the batch.
    """

    def __init__(self, message: str, positions: tuple[int, ...] = ()) -> None:
        super().__init__(message)
        self.positions = positions

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (*self.args, self.positions)


class SampleMismatch(SampleError, InvalidArgument, RuntimeError):
    """Samples of unequal shape, length, keys or kind, or integers beyond int64, cannot be in a batch; it names them.

    Make the samples equal in the dataset or its transform, pad them, or pass a `collate_fn` that does.
    """


class DTypeError(ShmTensorError, TypeError):
    """Data of another type than required; the message names both types.

    Convert the data first: a tensor with `to(dtype)`, other objects with `shmtensor.asarray` or `from_dlpack`.
    """


class SampleTypeError(SampleError, DTypeError):
    """A sample of a type that cannot be in a batch, or not beside the first one; the message names it.

    Convert it in the dataset or its transform, or pass a `collate_fn`.
    """


class LayoutError(ShmTensorError, ValueError):
    """An array whose memory cannot be used without a copy: not contiguous, read-only, or overlapping.

    Copy it first, with `clone()` or `contiguous()`, and use the copy.
    """


class MissingExtra(ShmTensorError, ImportError):
    """A required package is not installed; the message names the extra that provides it.

    Install it, for example with `pip install "shmtensor[scipy]"`.
    """


class OutOfMemory(ShmTensorError, MemoryError):
    """No memory for a request; the message has its size, the free memory, the limit hit and the largest holders.

    Release tensors, in this process or in those that the message names, or raise the limit that it names.
    `shmtensor-manager ls` shows the holders, and `shmtensor-manager gc` releases unused memory.
    """


class MappingError(ShmTensorError, OSError):
    """A file, shared-memory object or descriptor could not be opened or mapped; `errno` has the reason.

    Check that the path exists, that this user may read or write it, and that descriptors and memory are left.
    """


class GradientError(ShmTensorError, RuntimeError):
    """A gradient cannot be recorded or computed; the message names the operation and what to do.

    Often: keep the graph (`retain_graph=True`) for a second pass, do not write to a tensor that the graph needs, or
    leave the computation out of the graph with `detach()` or `no_grad()`.
    """


class DeviceUnavailable(ShmTensorError, RuntimeError):
    """The operation needs a device such as a GPU, or its driver, which is not available.

    Use CPU memory, or make the device available: `shmtensor.cuda.status()` returns the reason.
    """


class NotSupported(ShmTensorError, NotImplementedError):
    """An operation that is part of the interface but not implemented in this version.

    Use the replacement that the message names.
    """


class StaleHandle(ShmTensorError, LookupError):
    """The handle was valid, but its block has been freed (and its memory may have been reused).

    The process that sends a handle must keep the tensor until the receiver has opened it.
    """


class UnknownHandle(ShmTensorError, LookupError):
    """The manager does not know the handle: it never gave it out, or has released it with its segment.

    Check that both processes use the same manager, and keep the tensor until the receiver has opened the handle.
    """


class NameTaken(ShmTensorError, FileExistsError):
    """The name is bound to another object; open that one, or choose another name."""


class SegmentLost(ShmTensorError, ConnectionError):
    """The memory is lost: its sender and manager ended before this process mapped it, or it was truncated.

    Send the data again. Keep the sender alive until its messages are received.
    """


class OwnerDied(ShmTensorError, ConnectionError):
    """A tensor on a GPU never arrived completely: its sender was killed before the GPU had computed the content.

    Compute and send it again. A sender that may be killed should synchronize before it sends.
    """


class ConnectionLost(ShmTensorError, ConnectionError):
    """The other end of a channel ended, cannot be reached, or refused this one; the message has the reason.

    Check that the other end runs, its address, and both sides' keys and versions, and open the channel again.
    """


class ManagerError(ShmTensorError, ConnectionError):
    """The manager cannot be reached, refused this client, or broke the connection.

    `shmtensor-manager status` shows whether it runs and where its log is; `shmtensor-manager doctor` finds problems of
    this machine. Memory that this process has mapped stays valid.
    """


class ManagerUnavailable(ManagerError):
    """No manager runs at the address, or none can be started; the message has the reason.

    Start one with `shmtensor-manager serve`, or set `SHMTENSOR_MANAGER` to the address of one that runs.
    """


class ProtocolError(ManagerError):
    """The peer has another protocol version, or violated the protocol.

    Use the same version of shmtensor in all processes, and restart those that still have another one. Check that the
    address is that of a manager or channel of shmtensor.
    """


class ManagerTimeout(ManagerError, TimeoutError):
    """The manager is running but did not answer in time.

    It may be stopped, or the machine overloaded: continue it, or replace it with `shmtensor-manager restart`.
    """


class QuotaExceeded(OutOfMemory):
    """A limit of clients, segments, bytes or table entries was reached; the message names it.

    Release tensors, close queues or end processes that count against it, or raise the limit.
    """


class ClientUnavailable(ShmTensorError, RuntimeError):
    """This process cannot use shared memory: it was cloned without the fork hooks, or its fork was not registered.

    Start processes with `shmtensor.multiprocessing`, or do not use shared tensors in this one.
    """


class LockTimeout(ShmTensorError, TimeoutError):
    """A live process, for example a stopped one, kept a segment's metadata locked for too long.

    Continue or end that process; `shmtensor-manager ls` shows the processes. Then call again.
    """


class DeliveryTimeout(ShmTensorError, TimeoutError):
    """Messages in a channel were not delivered within the timeout of `flush`; none of them is lost.

    Call `flush` again, or with a longer timeout. If the other end takes no messages, check it.
    """


class MessageTooLarge(ShmTensorError, ValueError):
    """A message larger than the queue's `maxbytes`, or than any queue can hold.

    Send it in parts, or create the queue with a larger `maxbytes`. Tensors in shared memory hardly count.
    """


class QueueDamaged(ShmTensorError, RuntimeError):
    """A queue's shared memory is damaged: it was overwritten.

    Create a new queue. Look for code that writes beyond its arrays, such as an extension in C.
    """


class MessageDamaged(ShmTensorError, ValueError):
    """Received data is not a message of this version: it is truncated or damaged.

    Use the same version of shmtensor on both sides, pass messages unchanged, and send this one again.
    """


class FileDamaged(ShmTensorError, ValueError):
    """A file is damaged: text in place of a number, an inconsistent header, a size beyond its end.

    Save or copy it again, and check that it has the expected format.
    """


class EndOfFile(FileDamaged, EOFError):
    """A file ends before the requested data.

    Save or copy it again, or read less: it may have been cut off while it was written.
    """


class WorkerDied(ShmTensorError, ChildProcessError):
    """A worker was killed, or exited, during a task. A pool continues without that task; the iterator of a loader ends.

    Submit the task again if it may run twice. A loader continues after `loader.load_state_dict(loader.state_dict())`,
    or automatically with `on_worker_death="restart"`. An unexpected SIGKILL often means a lack of memory: see `dmesg`.

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

    An exception that is not an Exception, such as SystemExit, is not raised here, because it would end the program.
    Also raised by an iterator of a DataLoader that an error has ended before its last batch.

    Correct the error that the traceback shows in the dataset, and create a new iterator.
    """


class LoaderTimeout(ShmTensorError, TimeoutError):
    """A batch did not arrive within the `timeout` of a DataLoader; the message names the workers that have it.

    Set a longer `timeout`, or check what those workers wait for.
    """


class TaskFailed(ShmTensorError, RuntimeError):
    """A task of a WorkerPool raised an exception that cannot be raised here; the message has the traceback.

    An exception that is not an Exception, such as SystemExit, is not raised here, because it would end the program.
    Correct the error that the traceback shows; raise exceptions that can be pickled.
    """


class TaskTimeout(ShmTensorError, TimeoutError):
    """No result came within the `timeout` of a WorkerPool; the message names the workers and their tasks.

    Set a longer `timeout`, or check what those workers wait for.
    """


class ForeignReader(ShmTensorError, RuntimeError):
    """A reader of a broadcast was used in a process that did not create it; call `reader()` there."""


class StallWarning(RuntimeWarning):
    """A process, possibly stopped, keeps a queue's lock; the message has its pid. The wait continues.

    Continue that process (`kill -CONT`) or end it; the queue stays usable.
    """
