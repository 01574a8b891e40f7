"""`shmtensor-manager metrics`: serve a manager's figures to Prometheus, or write them to a file for node_exporter.

SIGTERM and SIGINT are blocked and waited for, so they never leave an incomplete file.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import threading

from shmtensor._loading import load
from shmtensor.errors import InvalidArgument, MissingExtra
from shmtensor.manager.selection import choose

TYPE_CHECKING = False
if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

PORT = 19100
HOST = "127.0.0.1"
INTERVAL_SECONDS = 15.0
POLL_SECONDS = 3600.0
"""Interval at which the server checks whether to end. It only ends with the process."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command."""
    how = parser.add_mutually_exclusive_group()
    how.add_argument(
        "--port",
        type=_port,
        default=PORT,
        metavar="N",
        help=f"serve at this TCP port (default {PORT}; 0: any free port)",
    )
    how.add_argument(
        "--textfile", metavar="PATH", help="write to PATH instead, for node_exporter, which reads files named *.prom"
    )
    how_often = parser.add_mutually_exclusive_group()
    how_often.add_argument(
        "--interval",
        type=_interval,
        default=INTERVAL_SECONDS,
        metavar="S",
        help=f"write the file every S seconds (default {INTERVAL_SECONDS:g})",
    )
    how_often.add_argument("--once", action="store_true", help="write the file once; without --textfile, to stdout")
    parser.add_argument(
        "--host",
        type=_host,
        default=HOST,
        help=f"serve at this IP address (default {HOST}; ::1 for IPv6), without a password",
    )


def _port(text: str) -> int:
    if not (text.isdecimal() and int(text) < 65536):
        raise argparse.ArgumentTypeError(f"{text} is not a port: a number from 0 to 65535")
    return int(text)


def _host(text: str) -> str:
    from ipaddress import ip_address

    try:
        return str(ip_address(text))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not an IP address such as {HOST} or ::1") from None


def _interval(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 1 <= value < 1e6:
        raise argparse.ArgumentTypeError(f"{text} is not a number of seconds from 1 to 1,000,000")
    return value


def run(options: argparse.Namespace) -> int:
    """Run the command. The manager is chosen at the start, and need not run. Blocks until SIGTERM or SIGINT.

    Raises:
        MissingExtra: prometheus_client is not installed.
        ManagerError: several managers run, and none was chosen.
        InvalidArgument: the address cannot be listened at, or the file cannot be written.
    """
    try:
        registry = load("manager.monitor.openmetrics").registry
    except ModuleNotFoundError as problem:
        raise MissingExtra(
            f"shmtensor-manager metrics needs prometheus_client ({problem}); pip install 'shmtensor[metrics]'"
        ) from None
    address = choose(options.address)
    group = registry(address)
    if options.once and options.textfile is None:
        from prometheus_client.exposition import choose_encoder

        encode, _ = choose_encoder("application/openmetrics-text")
        sys.stdout.write(encode(group).decode())
        return 0
    ends = {number for number in (signal.SIGTERM, signal.SIGINT) if signal.getsignal(number) is not signal.SIG_IGN}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ends)  # also in the threads that are started below
    try:
        if options.textfile is None:
            _serve(options, address, group, ends)
        else:
            _keep_file(options, address, group, ends)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return 0


def _say(options: argparse.Namespace, address: bytes, what: str, where: str) -> None:
    document = {"address": os.fsdecode(address), what: where}
    text = f"shmtensor-manager: metrics of the manager at {os.fsdecode(address)} are at {where}"
    print(json.dumps(document) if options.json else text, flush=True)


def _serve(options: argparse.Namespace, address: bytes, group: CollectorRegistry, ends: set[signal.Signals]) -> None:
    from shmtensor.manager.monitor.endpoint import Endpoint

    endpoint = Endpoint(options.host, options.port, group)
    threading.Thread(target=endpoint.serve_forever, args=[POLL_SECONDS], daemon=True).start()
    _say(options, address, "url", endpoint.url)
    signal.sigwait(ends)


def _keep_file(
    options: argparse.Namespace, address: bytes, group: CollectorRegistry, ends: set[signal.Signals]
) -> None:
    """Write the file at intervals until a signal ends it. After the first success, failures are only reported."""
    _write(options.textfile, group)
    if options.once:
        return
    _say(options, address, "textfile", options.textfile)
    while signal.sigtimedwait(ends, options.interval) is None:
        try:
            _write(options.textfile, group)
        except InvalidArgument as problem:
            print(f"shmtensor-manager: {problem}", file=sys.stderr, flush=True)


def _write(path: str, group: CollectorRegistry) -> None:
    """Replace the file by one rename, so that readers see a complete file. Raises InvalidArgument."""
    from prometheus_client import write_to_textfile

    try:
        write_to_textfile(path, group)
    except OSError as problem:
        raise InvalidArgument(f"cannot write {path}: {problem.strerror}; --textfile needs the path of a file") from None
