"""PipeFile: numbers and strings from or to a command (THPipeFile, popen)."""

from __future__ import annotations

import io
import os
import subprocess
from typing import Any

from ..errors import InvalidArgument
from .disk import StreamFile


class PipeFile(StreamFile):
    """What a command of the shell writes (mode "r"), or what it is to read (mode "w").

    `close`, which the end of a `with` block and the finalizer call, waits for the command to end, as pclose does.

    Args:
        command: run by /bin/sh.
        mode: "r" or "w".
        quiet: as for DiskFile.

    Raises:
        InvalidArgument: another mode, or a command that is no string.
        OSError: the shell cannot be started.
    """

    _process: subprocess.Popen[bytes] | None = None
    status: int | None = None
    """What the command exited with, once the file is closed; minus the signal's number when one killed it."""

    def __init__(self, command: str, mode: str = "r", quiet: bool = False) -> None:
        super().__init__(mode, ("r", "w"), quiet)
        if not isinstance(command, str) or "\0" in command:
            raise InvalidArgument(f"{command!r} is no command; give a string for the shell")
        self._name = command
        reading, writing = os.pipe2(os.O_CLOEXEC)
        ours, theirs = (reading, writing) if mode == "r" else (writing, reading)
        ends: dict[str, Any] = {"stdout" if mode == "r" else "stdin": theirs}
        try:
            self._process = subprocess.Popen(["/bin/sh", "-c", command], **ends)
        except OSError as error:
            os.close(ours)
            self._fail(OSError(error.errno, f"cannot run in mode {mode!r}: {error.strerror}", command))
        else:
            self._open(io.FileIO(ours, mode))
        finally:
            os.close(theirs)

    def close(self) -> None:
        """Write out what is pending, close the pipe and wait until the command has ended.

        Raises:
            InvalidArgument: it is closed already.
            OSError: what was pending cannot be written (BrokenPipeError: the command had ended).
        """
        try:
            super().close()
        finally:
            if self._process is not None:
                self.status = self._process.wait()
