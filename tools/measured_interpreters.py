"""For `make coverage`: interpreters that a run would not measure, measured.

Managers and link processes start with `-I -S`, which leaves out site-packages and with them coverage's own start.
Processes that end by `os._exit`, as forked children do, or that run another program write no counts of the native
module. This module is installed with a .pth file, which each interpreter of the environment reads before coverage's.

python tools/measured_interpreters.py     install it for this interpreter (Makefile, `covered`)
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any, NoReturn


def _with_site(arguments: Any) -> Any:
    """Return the command of an interpreter without the options that leave out site-packages."""
    if not isinstance(arguments, list) or arguments[:3] != [sys.executable, "-I", "-S"]:
        return arguments
    return [arguments[0], *arguments[3:]]


def _write_native_counts() -> None:
    native = sys.modules.get("shmtensor._native")
    if native is not None and native.__file__ is not None:
        ctypes.CDLL(native.__file__).shmtensor_write_coverage()


class _Popen(subprocess.Popen):  # type: ignore[type-arg]
    def __init__(self, args: Any, *others: Any, **named: Any) -> None:
        super().__init__(_with_site(args), *others, **named)


_exit, _execv = os._exit, os.execv


def _exit_with_counts(status: int) -> NoReturn:
    _write_native_counts()
    _exit(status)


def _execv_with_site(path: str, arguments: Any) -> NoReturn:
    _write_native_counts()
    _execv(path, _with_site(arguments))


if __name__ == "__main__":
    packages = Path(sysconfig.get_path("purelib"))
    shutil.copy(__file__, packages)
    (packages / "a0_measured_interpreters.pth").write_text("import measured_interpreters\n", encoding="utf-8")
else:
    subprocess.Popen = _Popen  # type: ignore[misc]
    os._exit = _exit_with_counts
    os.execv = _execv_with_site
