"""The command `shmtensor-manager`: run a manager, and send requests to one."""

# pathlib and contextlib cost time at every start of a manager.
# ruff: noqa: PTH113, PTH115, SIM105

from __future__ import annotations

import argparse
import errno
import io
import json
import os
import sys

from shmtensor._loading import load
from shmtensor.errors import ManagerTimeout, ManagerUnavailable, ShmTensorError
from shmtensor.manager import address as addresses
from shmtensor.manager import display, launch, protocol
from shmtensor.manager.connection import NothingThere, Observer
from shmtensor.manager.daemon import run
from shmtensor.manager.selection import ANSWER_SECONDS, candidates, observe, seconds, sockets
from shmtensor.manager.shortage import parse_size, size

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


MODULES: dict[str, tuple[str, str]] = {
    "doctor": ("manager.monitor.doctor", "check limits, memory, rights, versions and left files, and say what to do"),
    "keys": ("channel.console", "make the keys of one end of a channel between machines"),
    "leaks": ("manager.monitor.leaks", "show memory that has been held or in flight for long"),
    "metrics": ("manager.monitor.metrics", "serve figures to Prometheus, or write them to a file for node_exporter"),
    "page": ("manager.monitor.page", "serve a page on the loopback that draws the memory of a group"),
    "store": ("store.console", "list, show, put and remove objects of stores"),
    "top": ("manager.monitor.top", "show groups, processes, memory, queues, stores, names and locks, kept up to date"),
}
"""Commands in modules of their own: the module, which has `add_arguments(parser)` and `run(options)`; a help line.

A module is imported only when its command is chosen, so it does not slow down the start of a manager and may belong to
any layer.
"""


def common_arguments(**defaults: Any) -> argparse.ArgumentParser:
    """Return a parent of each command's parser, with the arguments that all commands have."""
    common = argparse.ArgumentParser(add_help=False)
    where = "path of the manager's socket (default: from SHMTENSOR_MANAGER or SHMTENSOR_GROUP, or the only manager)"
    common.add_argument("--address", help=where, **defaults)
    common.add_argument("--json", action="store_true", help="print JSON", **defaults)
    return common


def _parser(chosen: str) -> argparse.ArgumentParser:
    """Return the parser. Of the commands in MODULES, only the chosen one has its arguments."""
    parser = argparse.ArgumentParser(prog="shmtensor-manager", description="The manager of shared tensors.")
    commands = parser.add_subparsers(dest="command", required=True, metavar=" | ".join([*_COMMANDS, *MODULES]))
    common = common_arguments()
    serve = commands.add_parser("serve", parents=[common], help="run a manager in the foreground")
    serve.add_argument(
        "--max-clients", type=_count, default=4096, metavar="N", help="accept at most N clients (default 4096)"
    )
    serve.add_argument(
        "--max-bytes", type=_size, metavar="N", help="limit of reserved memory in total (512M, 4G; default: none)"
    )
    serve.add_argument("--max-bytes-per-client", type=_size, metavar="N", help="limit of each client (default: none)")
    serve.add_argument(
        "--idle-exit", type=seconds, metavar="S", help="end S seconds after the last client (default: never)"
    )
    status = commands.add_parser("status", parents=[common], help="show address, pid, version, uptime, log, statistics")
    status.add_argument("--all", action="store_true", help="show all managers in the runtime directory")
    commands.add_parser("ls", parents=[common], help="list segments, their holders, and holds in flight")
    gc = commands.add_parser(
        "gc",
        parents=[common],
        help="release unused handles, names and segments",
    )
    gc.add_argument(
        "--in-flight", type=seconds, metavar="S", help="also handles sent S or more seconds ago and never received"
    )
    commands.add_parser("restart", parents=[common], help="replace the manager by a new one; its clients keep running")
    commands.add_parser("stop", parents=[common], help="end the manager")
    for name, (module, line) in MODULES.items():
        command = commands.add_parser(name, parents=[common], help=line)
        if name == chosen:
            load(module).add_arguments(command)
    return parser


def _size(text: str) -> int:
    try:
        return parse_size(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text} is not a size such as 512M or 4G") from None


def _count(text: str) -> int:
    value = int(text) if text.isdecimal() else 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a number >= 1")
    return value


def say(options: argparse.Namespace, document: Any, text: str) -> None:
    """Print the document with --json, otherwise the text."""
    print(json.dumps(document, indent=2) if options.json else text)


def _serve(options: argparse.Namespace) -> int:
    listener, kept = run.inherited()
    if listener is not None:
        address = addresses.check_address(listener.getsockname())
    elif options.address or os.environ.get(addresses.MANAGER_VARIABLE):
        address = candidates(options.address)[0]
    else:
        address = addresses.shared_address(addresses.runtime_directory())
    shown = os.fsdecode(address)

    def ready() -> None:
        ready_document = {"address": shown, "pid": os.getpid()}
        say(options, ready_document, f"shmtensor-manager: listening at {shown} (pid {os.getpid()})")
        sys.stdout.flush()

    log = f"stderr of pid {os.getpid()}"
    try:
        log = os.readlink("/proc/self/fd/2") if os.path.isfile("/proc/self/fd/2") else log
    except OSError:
        pass
    run.serve(
        address,
        ready,
        listener=listener,
        kept=kept,
        max_clients=options.max_clients,
        max_bytes=options.max_bytes,
        max_bytes_per_client=options.max_bytes_per_client,
        idle_exit=options.idle_exit,
        log=log,
    )
    return 0


def _status(options: argparse.Namespace) -> int:
    if options.all:
        return _status_all(options)
    with observe(options.address, ANSWER_SECONDS) as observer:
        figures = json.loads(observer.document(protocol.Stats()))
    say(options, figures, display.status(figures))
    return 0


def _status_all(options: argparse.Namespace) -> int:
    directory = addresses.runtime_path()
    found: list[dict[str, Any]] = []
    for address in sockets(directory):
        try:
            with Observer(address, ANSWER_SECONDS) as observer:
                found.append(json.loads(observer.document(protocol.Stats())))
        except ShmTensorError as problem:
            found.append({"address": address, "error": str(problem)})
    texts = [f"{row['address']}\n  {row['error']}" if "error" in row else display.status(row) for row in found]
    say(options, found, "\n\n".join(texts) or f"no manager's socket in {directory}")
    return 0 if any("error" not in row for row in found) else 1


def _ls(options: argparse.Namespace) -> int:
    with observe(options.address, ANSWER_SECONDS) as observer:
        document = json.loads(observer.document(protocol.List()))
    say(options, document, display.listing(document))
    return 0


def _gc(options: argparse.Namespace) -> int:
    with observe(options.address) as observer:
        reply, _ = observer.request(protocol.Collect(-1.0 if options.in_flight is None else options.in_flight))
    assert isinstance(reply, protocol.Collected)
    document = {field: getattr(reply, field) for field in protocol.Collected.FIELDS}
    text = (
        f"released {reply.tickets} tickets in flight, removed {reply.names} names of freed blocks, destroyed "
        f"{reply.segments} segments ({size(reply.nbytes)})"
    )
    if reply.busy:
        text += f"; {reply.busy} segments were locked: try again"
    say(options, document, text)
    return 0


def _restart(options: argparse.Namespace) -> int:
    before = None
    try:
        with observe(options.address, ANSWER_SECONDS) as observer:
            address, before = observer.address, observer.welcome.pid
            observer.request(protocol.Restart())
            observer.wait_closed(ANSWER_SECONDS)
    except ManagerTimeout:
        address = candidates(options.address)[0]
        launch.succeed(address, *launch.kill(address))
        before = None
    with Observer(address) as observer:
        after = observer.welcome.pid
    shown = os.fsdecode(address)
    if before not in (None, after):
        raise ManagerUnavailable(
            f"the new manager at {shown} did not start (see the log of pid {before}); pid {after} continues in the "
            "background instead, and nothing is lost"
        )
    text = f"restarted the manager at {shown} (pid {after})"
    if before is None:
        text = f"killed the manager at {shown}, which did not answer; the new one is pid {after}"
    say(options, {"address": shown, "before": before, "after": after}, text)
    return 0


def _stop(options: argparse.Namespace) -> int:
    with observe(options.address) as observer:
        figures = json.loads(observer.document(protocol.Stats()))
        observer.request(protocol.Stop())
        pid, address = observer.welcome.pid, os.fsdecode(observer.address)
        observer.wait_closed()
    successor = None
    if figures["clients"] or figures["embryos"] or figures["live_blocks"]:  # otherwise connecting could start a new one
        try:
            with Observer(address) as observer:
                successor = observer.welcome.pid
        except NothingThere:
            pass  # the clients have ended meanwhile
    text = f"stopped the manager at {address} (pid {pid})"
    if successor is not None:
        text += f"; its memory is still in use, so pid {successor} continues in the background until it is released"
    say(options, {"address": address, "pid": pid, "stopped": True, "successor": successor}, text)
    return 0


_COMMANDS = {"serve": _serve, "status": _status, "ls": _ls, "gc": _gc, "restart": _restart, "stop": _stop}


def main(arguments: list[str] | None = None) -> int:
    """Run one command. Returns the exit code: 0: done, 1: refused or no manager runs, 2: wrong usage."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # paths may have bytes that are not text
    words = sys.argv[1:] if arguments is None else arguments
    options = _parser(words[0] if words else "").parse_args(words)
    try:
        if options.command in MODULES:
            code: int = load(MODULES[options.command][0]).run(options)
        else:
            code = _COMMANDS[options.command](options)
        if sys.stdout is not None:
            sys.stdout.flush()
        return code
    except ShmTensorError as problem:
        print(f"shmtensor-manager: {problem}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 1
    except OSError as problem:
        if problem.errno not in (errno.ENOSPC, errno.EIO, errno.EDQUOT):
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        print(f"shmtensor-manager: the output cannot be written: {problem.strerror}", file=sys.stderr)
        return 1
