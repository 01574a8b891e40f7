"""The page's HTTP server: GET of a fixed table of paths, on the loopback interface, for clients with the token.

Requests are checked in this order: size, Host, method, token, path. A request that another site makes a browser send
has another Host or no token (DNS rebinding; cross-site request forgery).
"""

from __future__ import annotations

import hmac
import json
import secrets
import sys
from pathlib import Path
from urllib.parse import parse_qsl

from shmtensor.errors import ShmTensorError
from shmtensor.manager.monitor.serving import BoundedHandler, BoundedServer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any, Protocol

    class Source(Protocol):
        """Where the frames come from: `live.Live` or `recording.Replay`."""

        def frames(self, start: float, speed: float) -> Iterator[dict[str, Any] | None]:
            """Yield frames without end, the first with all tables; None at least once a second without changes."""


HOST = "127.0.0.1"
DEFAULT_PORT = 80
"""Of HTTP."""
MAX_STREAMS = 16
"""Maximum number of event streams at a time."""
MAX_SPEED = 100.0
"""Maximum speed of a replay, as a multiple of the recorded speed."""

_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; base-uri 'none'; "
        "form-action 'none'; frame-ancestors 'none'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
_FILES = {
    "/": ("index.html", "text/html"),
    "/page.js": ("page.js", "text/javascript"),
    "/map.js": ("map.js", "text/javascript"),
    "/page.css": ("page.css", "text/css"),
    "/uplot.js": ("uplot.js", "text/javascript"),
    "/uplot.css": ("uplot.css", "text/css"),
}


class Server(BoundedServer):
    """Serves the page of one source. `serve_forever` blocks; other threads may use `url`, and call `shutdown`."""

    def __init__(self, source: Source, port: int = 0) -> None:
        """Listen on the loopback interface at `port` (0: any free port). Raises OSError: the port is in use."""
        self.source = source
        self.token: str = secrets.token_urlsafe(24)
        folder = Path(__file__).parent / "static"
        self.files: dict[str, tuple[bytes, str]] = {
            path: ((folder / name).read_bytes().replace(b"{{token}}", self.token.encode()), kind)
            for path, (name, kind) in _FILES.items()
        }
        self._streams = 0
        super().__init__((HOST, port), Handler)
        self.hosts: set[str] = _hosts(self.server_port)

    @property
    def url(self) -> str:
        """The address of the page, with its token."""
        return f"http://{HOST}:{self.server_port}/?token={self.token}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore connections that broke. Print other errors to stderr; an error that is not ours is a bug."""
        problem = sys.exception()
        if isinstance(problem, ShmTensorError):
            print(f"shmtensor-manager: {problem}", file=sys.stderr)
        elif not isinstance(problem, OSError):
            super().handle_error(request, client_address)

    def start_stream(self) -> bool:
        """Count a stream of events. False: there are too many."""
        with self._lock:
            if self._streams >= MAX_STREAMS:
                return False
            self._streams += 1
            return True

    def end_stream(self) -> None:
        """Count the end of a stream."""
        with self._lock:
            self._streams -= 1


def _hosts(port: int) -> set[str]:
    """Return the allowed values of a request's Host header. Clients omit the default port."""
    names = (HOST, "localhost", "[::1]")
    return {f"{name}:{port}" for name in names} | (set(names) if port == DEFAULT_PORT else set())


class Handler(BoundedHandler):
    """One connection, with one request."""

    server: Server

    def parse_request(self) -> bool:
        """Parse the request and check it, before its method is looked up. False: it was refused."""
        if not super().parse_request():
            return False
        hosts = self.headers.get_all("Host") or []
        if len(hosts) != 1 or hosts[0].strip().lower() not in self.server.hosts:
            return self.refuse(421, "the Host of the request is not this page's")
        if self.command != "GET":
            return self.refuse(405, "only GET is allowed")
        path, _, query = self.path.partition("?")
        try:
            self.query: dict[str, str] = dict(parse_qsl(query, max_num_fields=8))
        except ValueError:
            return self.refuse(400, "too many fields in the query")
        if not hmac.compare_digest(self.query.get("token", "").encode("utf-8", "replace"), self.server.token.encode()):
            return self.refuse(403, "the token is missing or wrong; open the URL that `shmtensor-manager page` printed")
        if path != "/events" and path not in self.server.files:
            return self.refuse(404, "there is no such path")
        self.path = path
        return True

    def handle_expect_100(self) -> bool:
        """Continue without asking for a body, which no request has."""
        return True

    def do_GET(self) -> None:  # noqa: N802
        """Answer a request that was checked."""
        if self.path == "/events":
            self._stream()
        else:
            self._answer(200, *self.server.files[self.path])

    def _stream(self) -> None:
        """Send the frames of the source as server-sent events, until the client closes the connection."""
        try:
            start, speed = float(self.query.get("from", 0)), float(self.query.get("speed", 1))
        except ValueError:
            start = speed = -1.0
        if not (0 <= start < float("inf") and 0 < speed <= MAX_SPEED):
            self.refuse(400, f"from is a number of seconds, and speed a number up to {MAX_SPEED:g}")
            return
        if not self.server.start_stream():
            self.refuse(503, f"the page is open {MAX_STREAMS} times; close one of them")
            return
        try:
            self.send_response(200)
            self._send_headers("text/event-stream")
            for frame in self.server.source.frames(start, speed):
                self.wfile.write(b":\n\n" if frame is None else b"data: " + encoded(frame) + b"\n\n")
        finally:
            self.server.end_stream()

    def _answer(self, status: int, content: bytes, kind: str) -> None:
        self.send_response(status)
        if status == 405:
            self.send_header("Allow", "GET")
        self.send_header("Content-Length", str(len(content)))
        self._send_headers(kind)
        if self.command != "HEAD":
            self.wfile.write(content)

    def _send_headers(self, kind: str) -> None:
        for name, value in _HEADERS.items():
            self.send_header(name, value)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Connection", "close")
        self.end_headers()

    def refuse(self, status: int, text: str) -> bool:
        """Answer with an error. Returns False, for `parse_request`."""
        self._answer(status, text.encode() + b"\n", "text/plain")
        return False

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Answer a request that cannot be parsed, without repeating any of it."""
        self.refuse(code, "the request cannot be understood")

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: requests contain the token."""


def encoded(frame: dict[str, Any]) -> bytes:
    """Return a frame as JSON in one line."""
    return json.dumps(frame, separators=(",", ":")).encode()
