"""The page's server against hostile requests: hosts, tokens, paths, methods, sizes, idle and slow connections."""

from __future__ import annotations

import resource
import select
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from manager_world import BOUND, until
from tiers import first

from shmtensor.manager.monitor import serving as bounds
from shmtensor.manager.monitor.page import server as page


class Still:
    """A source with one frame, which then is silent."""

    def __init__(self) -> None:
        self.started: list[tuple[float, float]] = []
        self.ended = 0

    def frames(self, start: float, speed: float) -> Iterator[dict[str, Any] | None]:
        self.started.append((start, speed))
        try:
            yield {"t": 1.0, "now": 1, "reset": True}
            while True:
                yield None
                time.sleep(0.02)
        finally:
            self.ended += 1


@pytest.fixture
def serving() -> Iterator[page.Server]:
    made = page.Server(Still())
    thread = threading.Thread(target=made.serve_forever, args=(0.02,))
    thread.start()
    yield made
    made.shutdown()
    made.server_close()
    thread.join(BOUND)
    assert not thread.is_alive()


def connect(serving: page.Server) -> socket.socket:
    return socket.create_connection((page.HOST, serving.server_port), BOUND)


def exchange(serving: page.Server, request: bytes) -> tuple[int, dict[str, str], bytes]:
    """Send bytes and read to the end: status, headers with lower-case names, body."""
    with connect(serving) as sock:
        sock.sendall(request)
        answer = b""
        try:
            while part := sock.recv(65536):
                answer += part
        except ConnectionResetError:
            assert answer  # it closed with some of the request unread
    head, _, body = answer.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    headers = dict(line.split(": ", 1) for line in lines)
    return int(first.split()[1]), {name.lower(): value for name, value in headers.items()}, body


def get(serving: page.Server, target: str | None = None, *, method: str = "GET", host: str = "", more: str = "") -> Any:
    target = f"/?token={serving.token}" if target is None else target
    host = host or f"127.0.0.1:{serving.server_port}"
    return exchange(serving, f"{method} {target} HTTP/1.1\r\nHost: {host}\r\n{more}\r\n".encode("latin-1"))


PATHS = ["/", "/page.js", "/map.js", "/page.css", "/uplot.js", "/uplot.css"]


@pytest.mark.parametrize("path", PATHS)
def test_files_with_the_token(serving: page.Server, path: str) -> None:
    status, headers, body = get(serving, f"{path}?token={serving.token}")
    assert status == 200 and body and int(headers["content-length"]) == len(body)
    assert headers["cache-control"] == "no-store"
    assert headers["x-content-type-options"] == "nosniff"
    assert "default-src 'none'" in headers["content-security-policy"]
    assert headers["referrer-policy"] == "no-referrer"
    assert b"{{token}}" not in body


def test_the_page_names_no_foreign_place(serving: page.Server) -> None:
    for path in ("/", "/page.js", "/map.js", "/page.css", "/uplot.css"):
        _, _, body = get(serving, f"{path}?token={serving.token}")
        assert b"//" not in body.replace(b"// ", b"") or b"http" not in body, path
        assert b"@import" not in body


@pytest.mark.parametrize("path", [*PATHS, "/events", "/nothing"])
@pytest.mark.parametrize(
    "query", ["", "?", "?token=", "?token=wrong", "?token={half}", "?token={twice}", "?Token={token}"]
)
def test_without_the_token(serving: page.Server, path: str, query: str) -> None:
    token = serving.token
    status, headers, body = get(serving, path + query.format(half=token[:-1], twice=token + token, token=token))
    assert status == 403 and b"the token is missing or wrong" in body
    assert token.encode() not in body and headers["cache-control"] == "no-store"


@pytest.mark.parametrize("token", ["%C3%A9", "%FF", "é", "%00"])
def test_tokens_with_odd_characters(serving: page.Server, token: str) -> None:
    assert get(serving, f"/?token={token}")[0] == 403


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "127.0.0.1",
        "127.0.0.1:1",
        "evil.example:{port}",
        "localhost.:{port}",
        "127.0.0.1:{port}:{port}",
        "127.0.0.1:{port}, evil",
        "0.0.0.0:{port}",
        "[::]:{port}",
    ],
)
def test_other_hosts(serving: page.Server, host: str) -> None:
    assert get(serving, host=host.format(port=serving.server_port))[0] == 421


@pytest.mark.parametrize("host", ["localhost:{port}", "LocalHost:{port}", "[::1]:{port}", "127.0.0.1:{port}"])
def test_own_hosts(serving: page.Server, host: str) -> None:
    assert get(serving, host=host.format(port=serving.server_port))[0] == 200


def test_clients_leave_the_default_port_out() -> None:
    assert page._hosts(80) - page._hosts(8080) >= {"127.0.0.1", "localhost", "[::1]", "127.0.0.1:80"}
    assert page._hosts(8080) == {"127.0.0.1:8080", "localhost:8080", "[::1]:8080"}


def test_no_host_and_two_hosts(serving: page.Server) -> None:
    target = f"/?token={serving.token}".encode()
    own = b"Host: 127.0.0.1:%d\r\n" % serving.server_port
    assert exchange(serving, b"GET " + target + b" HTTP/1.1\r\n\r\n")[0] == 421
    assert exchange(serving, b"GET " + target + b" HTTP/1.0\r\n\r\n")[0] == 421
    assert exchange(serving, b"GET " + target + b" HTTP/1.1\r\n" + own + b"Host: evil\r\n\r\n")[0] == 421
    assert exchange(serving, b"GET " + target + b" HTTP/1.1\r\n" + own + own + b"\r\n")[0] == 421


@pytest.mark.parametrize(
    "method", ["POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "CONNECT", "get", "GETT", "send_error"]
)
def test_other_methods(serving: page.Server, method: str) -> None:
    status, headers, body = get(serving, method=method, more="Content-Length: 3\r\n")
    assert (status, headers["allow"]) == (405, "GET") and b"only GET" in body


def test_head(serving: page.Server) -> None:
    status, headers, body = get(serving, method="HEAD")
    assert (status, headers["allow"], body) == (405, "GET", b"")


@pytest.mark.parametrize(
    "path",
    [
        "/../etc/passwd",
        "/%2e%2e/etc/passwd",
        "/static/page.js",
        "/page.js/",
        "/page.js%00",
        "/./page.js",
        "/index.html",
        "/server.py",
        "page.js",
        "/PAGE.JS",
        "/page.js;x",
        "*",
        "http://127.0.0.1/page.js",
        "/\\..\\page.js",
    ],
)
def test_path_tricks(serving: page.Server, path: str) -> None:
    status, _, body = get(serving, f"{path}?token={serving.token}")
    assert status == 404 and b"import" not in body


def test_requests_that_are_not_http(serving: page.Server) -> None:
    for request in (
        b"\r\n\r\n",
        b"\x16\x03\x01\x02\0\x01\0\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET / X\r\n\r\n",
        b"\0" * 500 + b"\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost\r\n\r\n",
        b"GET /\r\n\r\n",
    ):
        with connect(serving) as sock:
            sock.sendall(request)
            answer = sock.recv(65536)
            assert b"html" not in answer.lower() and b"200" not in answer
    assert get(serving)[0] == 200


def test_requests_that_are_too_large(serving: page.Server) -> None:
    long = "x" * bounds.MAX_HEAD_BYTES
    for target, more in ((f"/?token={long}", ""), (None, f"X: {long}\r\n"), (None, "X: y\r\n" * 4000)):
        assert get(serving, target, more=more)[0] == 431
    assert get(serving, more="X: y\r\n" * 150)[0] in (400, 431)
    assert get(serving, "/?" + "a=b&" * 50 + f"token={serving.token}")[0] == 400


def test_a_request_in_pieces(serving: page.Server) -> None:
    with connect(serving) as sock:
        for byte in f"GET /?token={serving.token} HTTP/1.1\r\nHost: localhost:{serving.server_port}\r\n\r\n".encode():
            sock.sendall(bytes([byte]))
        assert sock.recv(65536).startswith(b"HTTP/1.0 200")


def test_requests_that_stay_incomplete_are_closed(serving: page.Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also of a client that sends another byte whenever its connection might be taken for idle."""
    monkeypatch.setattr(bounds, "REQUEST_SECONDS", 0.5)
    with connect(serving) as silent, connect(serving) as slow:
        slow.sendall(b"GET / HTTP/1.1\r\n")
        deadline = time.monotonic() + BOUND
        while not select.select([slow], [], [], 0.05)[0]:
            assert time.monotonic() < deadline
            slow.sendall(b"X")
        silent.settimeout(BOUND)
        assert silent.recv(1) == b""
    until(lambda: not serving._waiting, "the connections to be forgotten")


@pytest.mark.parametrize("most", first([1000, 10_000]))
def test_many_idle_connections(serving: page.Server, most: int) -> None:
    """The page still answers, and few threads serve them."""
    number = min(most, resource.getrlimit(resource.RLIMIT_NOFILE)[0] - 200)
    idle = []
    try:
        for at in range(number):
            idle.append(connect(serving))
            if at % 500 == 499:
                assert get(serving)[0] == 200
        until(lambda: len(serving._waiting) <= bounds.MAX_WAITING, "older connections to be closed")
        until(lambda: threading.active_count() < 2 * bounds.MAX_WAITING, "threads of closed connections to end")
        assert get(serving)[0] == 200
    finally:
        for sock in idle:
            sock.close()
    until(lambda: not serving._waiting, "the connections to be forgotten")


def test_stream(serving: page.Server) -> None:
    with connect(serving) as sock:
        target = f"/events?token={serving.token}&from=2.5&speed=4"
        sock.sendall(f"GET {target} HTTP/1.1\r\nHost: localhost:{serving.server_port}\r\n\r\n".encode())
        answer = b""
        while answer.count(b"\n\n") < 3:
            answer += sock.recv(65536)
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"text/event-stream" in head and b"no-store" in head
    assert body.startswith(b'data: {"t":1.0,"now":1,"reset":true}\n\n:\n\n')
    source: Any = serving.source
    assert source.started == [(2.5, 4.0)]
    until(lambda: source.ended == 1, "the stream to end with its connection")


@pytest.mark.parametrize(
    "query", ["from=x", "from=-1", "from=nan", "from=inf", "speed=0", "speed=1e9", "speed=nan", "from=,"]
)
def test_streams_from_impossible_places(serving: page.Server, query: str) -> None:
    assert get(serving, f"/events?token={serving.token}&{query}")[0] == 400


def test_too_many_streams(serving: page.Server) -> None:
    request = f"GET /events?token={serving.token} HTTP/1.1\r\nHost: localhost:{serving.server_port}\r\n\r\n".encode()
    streams = []
    for _ in range(page.MAX_STREAMS):
        streams.append(connect(serving))
        streams[-1].sendall(request)
        assert streams[-1].recv(15) == b"HTTP/1.0 200 OK"
    assert get(serving, f"/events?token={serving.token}")[0] == 503
    assert get(serving)[0] == 200
    for sock in streams:
        sock.close()
    until(lambda: serving._streams == 0, "the streams to end")


def test_tokens_differ(serving: page.Server) -> None:
    with page.Server(Still()) as other:
        assert other.token != serving.token and len(other.token) >= 32
        assert other.server_address[0] == "127.0.0.1"
        assert other.url.endswith(f":{other.server_port}/?token={other.token}")
