"""What the servers of the page and of the metrics have in common: bounds on connections, and on each request.

A request is read whole before it is looked at: its size and its time have limits. HTTP/1.0: one for each connection.
"""

from __future__ import annotations

import io
import socket
import socketserver
import threading
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from time import monotonic

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

MAX_WAITING = 64
"""Connections without a complete request; a further one closes the oldest of them."""
MAX_HEAD_BYTES = 16 << 10
"""Size of a request with its headers."""
REQUEST_SECONDS = 5.0
"""A request must be complete this long after its connection."""
SEND_SECONDS = 10.0
"""A client that takes nothing for this long is disconnected."""


class BoundedServer(ThreadingHTTPServer):
    """A server with a thread for each connection. Handlers are subclasses of BoundedHandler."""

    request_queue_size = 4096
    block_on_close = False

    def __init__(self, address: tuple[str, int], handler: type[BoundedHandler]) -> None:
        """Listen at an IP address and port (0: any free one). Raises OSError: it is not possible."""
        self._lock = threading.Lock()
        self._waiting: dict[socket.socket, None] = {}  # oldest first
        super().__init__(address, handler)

    def server_bind(self) -> None:
        """Bind without looking the host's name up, which may ask a name server."""
        socketserver.TCPServer.server_bind(self)
        address: Any = self.server_address
        self.server_name: str = address[0]
        self.server_port: int = address[1]

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a connection in a thread of its own. Too many that wait: the oldest of them is closed."""
        with self._lock:
            self._waiting[request] = None
            crowded = next(iter(self._waiting)) if len(self._waiting) > MAX_WAITING else None
            if crowded is not None:
                del self._waiting[crowded]
                _end(crowded)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """Close a connection."""
        with self._lock:
            self._waiting.pop(request, None)
            super().shutdown_request(request)

    def has_request(self, request: socket.socket) -> None:
        """Note that a connection has sent a complete request."""
        with self._lock:
            self._waiting.pop(request, None)


def _end(connection: socket.socket) -> None:
    """Let the thread that reads from a connection find its end. The thread closes it."""
    with suppress(OSError):  # the other side was faster
        connection.shutdown(socket.SHUT_RDWR)


class BoundedHandler(BaseHTTPRequestHandler):
    """One connection, with one request."""

    server: BoundedServer
    server_version = "shmtensor"
    sys_version = ""

    def handle(self) -> None:
        """Read one request and answer it. Blocks up to REQUEST_SECONDS for it."""
        head = self._read_head()
        self.server.has_request(self.connection)
        self.connection.settimeout(SEND_SECONDS)
        self.rfile: io.BufferedIOBase = io.BytesIO(head)
        self.close_connection = True
        if head:
            self.handle_one_request()

    def _read_head(self) -> bytes:
        """Return what the client sent up to the empty line, or MAX_HEAD_BYTES of it; empty if it did not finish."""
        deadline = monotonic() + REQUEST_SECONDS
        head = bytearray()
        while b"\r\n\r\n" not in head and b"\n\n" not in head and len(head) < MAX_HEAD_BYTES:
            left = deadline - monotonic()
            if left <= 0:
                return b""
            self.connection.settimeout(left)
            try:
                part = self.connection.recv(MAX_HEAD_BYTES - len(head))
            except TimeoutError:
                return b""
            if not part:
                return b""
            head += part
        return bytes(head)

    def parse_request(self) -> bool:
        """Parse the request, before its method is looked up. False: it was refused."""
        self.request_version = "HTTP/1.0"
        self.command = self.requestline = ""
        if len(self.rfile.getbuffer()) >= MAX_HEAD_BYTES:  # type: ignore[attr-defined]
            return self.refuse(431, f"a request has at most {MAX_HEAD_BYTES} bytes")
        return super().parse_request()

    def refuse(self, status: int, text: str) -> bool:
        """Answer with an error. Returns False, for `parse_request`."""
        self.send_error(status, text)
        return False
