"""Base of the servers of the page and of the metrics, with limits on connections and on each request.

A request is read completely before it is parsed; its size and time are limited. HTTP/1.0: one request per connection.
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
"""Maximum number of connections without a complete request; a further one closes the oldest."""
MAX_HEAD_BYTES = 16 << 10
"""Maximum bytes of a request with its headers."""
REQUEST_SECONDS = 5.0
"""A request must be complete this long after the connection was made."""
SEND_SECONDS = 10.0
"""A client that reads nothing for this long is disconnected."""


class BoundedServer(ThreadingHTTPServer):
    """A server with a thread for each connection. Handlers are subclasses of BoundedHandler."""

    request_queue_size = 4096
    block_on_close = False

    def __init__(self, address: tuple[str, int], handler: type[BoundedHandler]) -> None:
        """Listen at an IP address and port (0: any free one). Raises OSError: the address cannot be used."""
        self._lock = threading.Lock()
        self._waiting: dict[socket.socket, None] = {}  # oldest first
        super().__init__(address, handler)

    def server_bind(self) -> None:
        """Bind without looking up the host's name, which may query a name server."""
        socketserver.TCPServer.server_bind(self)
        address: Any = self.server_address
        self.server_name: str = address[0]
        self.server_port: int = address[1]

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a connection in its own thread. If too many wait, close the oldest of them."""
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
    """Shut down a connection, so that the thread that reads from it ends and closes it."""
    with suppress(OSError):  # the peer has closed it
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
        """Return the request up to the empty line, or its first MAX_HEAD_BYTES; empty if it is incomplete."""
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
