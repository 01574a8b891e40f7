"""Run the command of `cli`: `python -m shmtensor.manager`."""

from __future__ import annotations

import sys

from shmtensor.manager.cli import main

if __name__ == "__main__":
    sys.exit(main())
