"""The HTTP endpoint that Prometheus scrapes: GET /metrics and nothing else. prometheus_client must be installed."""

from __future__ import annotations

import socket
import sys
from http import HTTPStatus
from http.server import ThreadingHTTPServer
from urllib.parse import urlsplit

from prometheus_client import MetricsHandler

from shmtensor.errors import InvalidArgument

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from prometheus_client import CollectorRegistry

PATH = "/metrics"
IDLE_SECONDS = 10.0
"""A connection that sends nothing for this long is closed."""


class _Handler(MetricsHandler):
    """Answers in the format that the Accept header asks for: OpenMetrics, or Prometheus' older text format."""

    timeout = IDLE_SECONDS

    def do_GET(self) -> None:  # noqa: N802
        if urlsplit(self.path).path == PATH:
            super().do_GET()
        else:
            self.send_error(HTTPStatus.NOT_FOUND, f"the metrics are at {PATH}")


class Endpoint(ThreadingHTTPServer):
    """A server of the metrics, with a thread for each connection."""

    def __init__(self, host: str, port: int, registry: CollectorRegistry) -> None:
        """Listen at an IP address and port (0: any free one). Raises InvalidArgument: it is not possible."""
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            super().__init__((host, port), _Handler.factory(registry))
        except OSError as problem:
            raise InvalidArgument(
                f"cannot listen at {_shown(host, port)}: {problem.strerror}; choose another --port or --host"
            ) from None
        self.url = f"http://{_shown(host, self.server_port)}{PATH}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print a traceback, unless the other side has closed the connection or does not read."""
        if not isinstance(sys.exception(), ConnectionError | TimeoutError):
            super().handle_error(request, client_address)


def _shown(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
