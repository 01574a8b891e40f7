"""PipeFile: numbers and strings from or to a command (THPipeFile, popen)."""

from __future__ import annotations

import io
import os
import subprocess
from typing import Any

from ..errors import InvalidArgument
from .disk import StreamFile


class PipeFile(StreamFile):
    """The output (mode "r") or the input (mode "w") of a shell command.

    `close`, which is called at the end of a `with` block and by the finalizer, waits for the command, as pclose does.

    Args:
        command: run by /bin/sh.
        mode: "r" or "w".
        quiet: as for DiskFile.

    Raises:
        InvalidArgument: an unknown mode, or a command that is not a string.
        OSError: the shell cannot be started.
    """

    _process: subprocess.Popen[bytes] | None = None
    status: int | None = None
    """Exit status of the command once the file is closed; the negative signal number if it was killed."""

    def __init__(self, command: str, mode: str = "r", quiet: bool = False) -> None:
        super().__init__(mode, ("r", "w"), quiet)
        if not isinstance(command, str) or "\0" in command:
            raise InvalidArgument(f"{command!r} is not a shell command; give a string without NUL")
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
        """Write buffered bytes, close the pipe and wait until the command has ended.

        Raises:
            InvalidArgument: the file is closed already.
            OSError: buffered bytes cannot be written (BrokenPipeError: the command has ended).
        """
        try:
            super().close()
        finally:
            if self._process is not None:
                self.status = self._process.wait()
