"""Workers of start method "forkserver", forked by a separate server.

Processes inherit the signal mask of the server that forks them. The standard fork server serves the whole program,
whose other processes must get SIGINT and SIGTERM. This one starts with them blocked, and so do the workers that it
forks, until they ignore them.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from multiprocessing import forkserver, popen_forkserver, reduction, resource_tracker, spawn, util
from multiprocessing.context import set_spawning_popen
from typing import Any

from ..ipc.processes import ForkServerProcess, start_pickled

__all__ = ["ForkServerWorker", "start_server"]


_server = forkserver.ForkServer()


def _renew() -> None:
    """Let a fork of this process, which is not the server's parent, start its own server."""
    global _server
    _server = forkserver.ForkServer()


os.register_at_fork(after_in_child=_renew)


def start_server(deferred: Callable[[], Any]) -> None:
    """Start the server, if it does not run. Blocks until its process is started; raises as starting a process does.

    Args:
        deferred: returns a context manager in which the signals are blocked.
    """
    resource_tracker.ensure_running()  # first, because it unblocks them
    standard: Any = forkserver
    _server.set_forkserver_preload(standard._forkserver._preload_modules)
    with deferred():
        _server.ensure_running()


class _Popen(popen_forkserver.Popen):
    """The standard class with this server."""

    _fds: list[int]

    def _launch(self, process_obj: Any) -> None:
        preparation = spawn.get_preparation_data(process_obj.name)
        data = io.BytesIO()
        set_spawning_popen(self)
        try:
            reduction.dump(preparation, data)
            reduction.dump(process_obj, data)
        finally:
            set_spawning_popen(None)
        self.sentinel, writer = _server.connect_to_new_process(self._fds)
        kept = os.dup(writer)  # the worker's sentinel of this process
        self.finalizer = util.Finalize(self, _close, (kept, self.sentinel))
        with os.fdopen(writer, "wb") as file:
            file.write(data.getbuffer())
        self.pid = forkserver.read_signed(self.sentinel)


def _close(*descriptors: int) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


class ForkServerWorker(ForkServerProcess):
    """A process that is forked by this server. It starts with SIGINT and SIGTERM blocked."""

    __module__ = __name__

    @staticmethod
    def _Popen(process_obj: Any) -> Any:
        return start_pickled(_Popen, process_obj)
