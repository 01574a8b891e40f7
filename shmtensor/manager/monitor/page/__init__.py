"""`shmtensor-manager page`: a page in the browser that draws the memory of a group, on the loopback, with a token."""

from __future__ import annotations

import argparse
import json
import os
import signal
import threading

from shmtensor.errors import InvalidArgument
from shmtensor.manager.monitor.page.live import Live
from shmtensor.manager.monitor.page.recording import Recorder, Replay
from shmtensor.manager.monitor.page.server import Server
from shmtensor.manager.selection import ANSWER_SECONDS, observe

MAX_RATE = 30.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument("--port", type=_port, default=0, metavar="N", help="port on 127.0.0.1 (default: a free one)")
    parser.add_argument(
        "--rate", type=_rate, default=10.0, metavar="N", help=f"pictures per second, up to {MAX_RATE:g} (default 10)"
    )
    parser.add_argument("--record", metavar="FILE", help="write what the page shows to a new file, from now on")
    parser.add_argument("--replay", metavar="FILE", help="show a recording; no manager is needed")


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"{text} is not a port")
    return int(text)


def _rate(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0.1 <= value <= MAX_RATE:
        raise argparse.ArgumentTypeError(f"{text} is not a number from 0.1 to {MAX_RATE:g}")
    return value


def run(options: argparse.Namespace) -> int:
    """Print the URL of the page and serve it until a signal ends the process. Returns the exit code."""
    if options.record and options.replay:
        raise InvalidArgument("--record and --replay exclude each other; record while a group runs, replay later")
    source: Live | Replay
    if options.replay:
        source = Replay(options.replay)
    else:
        with observe(options.address, ANSWER_SECONDS) as observer:  # so that a wrong address is reported now
            source = Live(observer.address, options.rate)
    try:
        server = Server(source, options.port)
    except OSError as problem:
        raise InvalidArgument(f"cannot listen at port {options.port}: {problem.strerror}; choose another") from None
    recorder = Recorder(source, options.record) if options.record and isinstance(source, Live) else None
    threading.Thread(target=server.serve_forever, name="page_serve", daemon=True).start()
    print(json.dumps({"url": server.url, "pid": os.getpid()}) if options.json else server.url, flush=True)
    _await_signal()
    if recorder is not None:
        recorder.close()
    return 0


def _await_signal() -> None:
    """Wait for SIGINT, SIGTERM or SIGHUP, unless they are ignored."""
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, lambda *_: ended.set())
    while not ended.wait(3600):
        pass
