"""Installs a wheel into a new environment and runs the tests against it, without the sources of the package.

python tools/check_wheel.py dist build/wheel-test -- -m "not exhaustive" -n 3

The folder gets an environment and a copy of the files that the tests read: tests, examples and documents, but neither
shmtensor/ nor native/. It needs no compiler, no headers and no make, so that it can run in a bare image with only
Python; tests that need something absent are skipped. Arguments after `--` are passed to pytest.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
COPIED = ("tests", "examples", "benchmarks", "docs", "tools")
FILES = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "Makefile", "CMakeLists.txt", "pyproject.toml")
EXTRAS = "test,examples"


def run(*command: str | Path, **how: object) -> None:
    subprocess.run([str(one) for one in command], check=True, **how)  # type: ignore[call-overload]


def wheel_in(dist: Path) -> Path:
    """The wheel of a folder for this interpreter."""
    tag = f"cp{sys.version_info.major}{sys.version_info.minor}{sys.abiflags}"
    found = sorted(dist.glob(f"shmtensor-*-cp3*-{tag}-*.whl"))
    if len(found) != 1:
        raise SystemExit(
            f"{dist} has {len(found)} wheels for {tag}, not one; run `make wheel PYTHON={sys.executable}` first"
        )
    return found[0]


def main() -> int:
    parser = argparse.ArgumentParser(description="Run the tests against an installed wheel.")
    parser.add_argument("dist", type=Path, help="folder with the wheel")
    parser.add_argument("folder", type=Path, help="folder for the environment and the tests; it is recreated")
    parser.add_argument("arguments", nargs="*", help="arguments of pytest, after --")
    options = parser.parse_args()
    wheel = wheel_in(options.dist)
    folder = options.folder.resolve()
    shutil.rmtree(folder, ignore_errors=True)
    for name in COPIED:
        shutil.copytree(ROOT / name, folder / "suite" / name, ignore=shutil.ignore_patterns("__pycache__", "*.pyc"))
    for name in FILES:
        shutil.copyfile(ROOT / name, folder / "suite" / name)
    run(sys.executable, "-m", "venv", folder / "environment")
    python = folder / "environment" / "bin" / "python"
    run(python, "-m", "pip", "install", "--quiet", "--upgrade", "pip")
    run(python, "-m", "pip", "install", "--quiet", "--only-binary", ":all:", f"{wheel.resolve()}[{EXTRAS}]")
    where = "import shmtensor; print(shmtensor.__version__, shmtensor.__file__)"
    print(subprocess.check_output([python, "-P", "-c", where], text=True), end="", flush=True)
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    return subprocess.call([python, "-P", "-m", "pytest", *options.arguments], cwd=folder / "suite", env=environment)


if __name__ == "__main__":
    sys.exit(main())
