"""The proxy that stands in for a bad network: it may cut a connection anywhere, but must not change data."""

from __future__ import annotations

import random
import socket
import threading
from contextlib import suppress

import numpy as np
from channel_world import BOUND, until
from link_proxy import LinkProxy

_PART = 512


def test_what_passes_before_a_reset_is_the_beginning_of_what_was_sent():
    sent = np.arange(1 << 18, dtype=np.uint32).tobytes()
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(BOUND)
        proxy = LinkProxy(server.getsockname()[:2])
        proxy.delay = 0.005  # while a part is delayed, the next ones wait behind it
        try:
            for seed in range(10):
                arrived = bytearray()
                near = socket.create_connection(proxy.address, BOUND)
                far, _ = server.accept()
                threads = [
                    threading.Thread(target=_send, args=(near, sent)),
                    threading.Thread(target=_receive, args=(far, arrived)),
                ]
                for thread in threads:
                    thread.start()
                until(lambda seen=arrived: seen, "a part has arrived")
                proxy.reset(random.Random(seed))
                for thread in threads:
                    thread.join(BOUND)
                    assert not thread.is_alive()
                assert bytes(arrived) == sent[: len(arrived)]
        finally:
            proxy.close()


def _send(connection: socket.socket, data: bytes) -> None:
    with connection, suppress(OSError):
        for at in range(0, len(data), _PART):
            connection.sendall(data[at : at + _PART])


def _receive(connection: socket.socket, into: bytearray) -> None:
    with connection, suppress(ConnectionError):
        connection.settimeout(BOUND)
        while part := connection.recv(4096):
            into += part
