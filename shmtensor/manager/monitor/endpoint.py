"""The HTTP endpoint that Prometheus scrapes: GET /metrics and nothing else. prometheus_client must be installed."""

from __future__ import annotations

import socket
import sys
import threading
from http import HTTPStatus
from urllib.parse import urlsplit

from prometheus_client import MetricsHandler

from shmtensor.errors import InvalidArgument
from shmtensor.manager.monitor.serving import BoundedHandler, BoundedServer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from prometheus_client import CollectorRegistry

PATH = "/metrics"
MAX_ANSWERS = 64
"""Maximum number of scrapes at a time; a further one is refused."""


class _Handler(BoundedHandler, MetricsHandler):
    """Answers in the format that the Accept header asks for: OpenMetrics, or Prometheus' older text format."""

    server: Endpoint

    def do_GET(self) -> None:  # noqa: N802
        if urlsplit(self.path).path != PATH:
            self.refuse(HTTPStatus.NOT_FOUND, f"the metrics are at {PATH}")
        elif not self.server.answers.acquire(blocking=False):
            self.refuse(HTTPStatus.SERVICE_UNAVAILABLE, f"{MAX_ANSWERS} scrapes wait for an answer")
        else:
            try:
                super().do_GET()
            finally:
                self.server.answers.release()


class Endpoint(BoundedServer):
    """A server of the metrics."""

    def __init__(self, host: str, port: int, registry: CollectorRegistry) -> None:
        """Listen at an IP address and port (0: any free one). Raises InvalidArgument: the address cannot be used."""
        self.answers: threading.BoundedSemaphore = threading.BoundedSemaphore(MAX_ANSWERS)
        self.address_family: int = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            super().__init__((host, port), _Handler.factory(registry))
        except OSError as problem:
            raise InvalidArgument(
                f"cannot listen at {_shown(host, port)}: {problem.strerror}; choose another --port or --host"
            ) from None
        self.url: str = f"http://{_shown(host, self.server_port)}{PATH}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print a traceback, unless the other side has closed the connection or does not read."""
        if not isinstance(sys.exception(), ConnectionError | TimeoutError):
            super().handle_error(request, client_address)


def _shown(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
