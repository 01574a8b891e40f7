"""Two unrelated processes share a tensor: one line of text is all that passes between them.

Shell A:  python examples/handle_exchange.py
          prints a tuple, then waits until another process changes the tensor that the tuple names
Shell B:  python examples/handle_exchange.py "(b'/run/user/1000/shmtensor/...', b'/torch_4711_...', 25)"
          opens the tensor that the tuple names and changes it; A sees the change at once
"""

from __future__ import annotations

import argparse
import ast
import sys
import time

import shmtensor

Handle = tuple[bytes, bytes, int]  # (address of the manager, name of the block, number of elements)


def offer(timeout: float) -> int:
    """Process A. Waits up to `timeout` seconds for a change; returns the exit status."""
    tensor = shmtensor.ones(5, 5, shared=True)
    print(tensor.storage()._share_filename_(), flush=True)
    print(f"waiting {timeout:g} s for another process to change it", file=sys.stderr)

    numbers = tensor.numpy()
    deadline = time.monotonic() + timeout
    while (numbers == 1).all():
        if time.monotonic() > deadline:
            print(f"handle_exchange: nobody changed the tensor within {timeout:g} s", file=sys.stderr)
            return 1
        time.sleep(0.01)
    time.sleep(0.01)  # the other process may not be done with the change
    print(f"changed:\n{numbers}", flush=True)
    return 0


def change(handle: Handle) -> int:
    """Process B: opens the tensor of the handle and adds 1 to 25 to its elements; returns the exit status."""
    try:
        tensor = shmtensor.Tensor(shmtensor.Storage._new_shared_filename(*handle)).view((5, 5))
    except shmtensor.errors.ShmTensorError as error:
        print(f"handle_exchange: {error}", file=sys.stderr)
        return 1
    print(f"opened:\n{tensor.numpy()}")
    tensor += shmtensor.arange(1, 26, dtype=shmtensor.float32).view(5, 5)
    return 0


def parse_handle(text: str) -> Handle:
    try:
        handle = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        handle = None
    match handle:
        case (bytes() as manager, bytes() as name, int() as size):
            return manager, name, size
        case _:
            raise argparse.ArgumentTypeError(
                f"{text!r} is not a tuple (bytes, bytes, int) as the other process prints it"
            )


def main() -> int:
    parser = argparse.ArgumentParser(description="Share a 5x5 tensor between two unrelated processes.")
    parser.add_argument("handle", nargs="?", type=parse_handle, help="the tuple that the other process printed")
    parser.add_argument(
        "--timeout", type=float, default=120.0, metavar="S", help="seconds to wait (default: %(default)g)"
    )
    arguments = parser.parse_args()
    try:
        return offer(arguments.timeout) if arguments.handle is None else change(arguments.handle)
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
