"""A manager's figures as metrics of prometheus_client, which must be installed. docs/operating.md lists the metrics."""

from __future__ import annotations

import json
import os
import sys
import threading
from time import monotonic

from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily
from prometheus_client.registry import Collector

from shmtensor.errors import ShmTensorError
from shmtensor.manager import protocol
from shmtensor.manager.connection import Observer
from shmtensor.manager.selection import ANSWER_SECONDS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from prometheus_client.metrics_core import Metric

KEEP_SECONDS = 1.0
"""Minimum interval between requests to the manager; scrapes in between get the previous answer."""

GAUGES = [
    ("clients", "clients", "Processes that use the manager's memory."),
    ("segments", "segments", "Segments: arenas, single large blocks and rings."),
    ("rings", "rings", "Rings: queues and broadcasts, with and without a name."),
    ("blocks", "live_blocks", "Blocks that are held. Each is the memory of a storage, a ring or a lock."),
    ("live_bytes", "live_bytes", "Bytes of the blocks that are held."),
    ("reserved_bytes", "reserved_bytes", "Bytes reserved from the system, including caches of clients."),
    ("charged_bytes", "charged_bytes", "Bytes that count against the limit."),
    ("oldest_ticket_seconds", "oldest_ticket_seconds", "Age of the oldest tensor in an unloaded pickle; 0: none."),
    ("open_fds", "descriptors", "File descriptors that the manager has open."),
    ("max_fds", "max_descriptors", "File descriptors that the manager may have open."),
]
"""Metrics with one value: name, key in STATS, meaning. The next two lists likewise."""
LIMITS = [
    ("limit_bytes", "max_bytes", "Bytes that all clients together may reserve."),
    ("client_limit_bytes", "max_bytes_per_client", "Bytes that each client may reserve."),
]
"""Absent where there is no limit."""
COUNTERS = [
    ("requests", "requests", "Requests to the managers of the group."),
    ("refused_requests", "refused", "Requests and connections that were refused."),
    ("reaped_clients", "reaped", "Clients that ended or were killed, whose memory the manager reclaimed."),
]
RINGS = [
    ("ring_messages", "messages", "Messages waiting in the queue, or for readers of the broadcast, of that name."),
    ("ring_bytes", "bytes", "Bytes of these messages and of the blocks in them."),
]
"""Metrics of each queue and broadcast that has a name: name, key in `named_rings`, meaning."""
STORES = [
    ("store_objects", "objects", "Objects of the store of that name that are in memory or in files."),
    ("store_bytes", "bytes", "Bytes of its objects in memory."),
    ("store_limit_bytes", "max_bytes", "Maximum bytes of its objects in memory."),
    ("store_spilled_objects", "spilled", "Objects that are in files."),
    ("store_spilled_bytes", "spilled_bytes", "Bytes of its objects in files."),
    ("store_spilled_limit_bytes", "max_spilled_bytes", "Maximum bytes of its objects in files."),
    ("store_table_bytes", "table_bytes", "Memory of its table itself."),
]
"""Metrics of each store that has a name: name, key in `named_stores`, meaning. Limits of 0 (none) are absent."""
STORE_COUNTERS = [
    ("store_evictions", "evicted", "Objects of the store that were removed to make room for others."),
    ("store_expirations", "expired", "Objects of the store that were removed because they had expired."),
]


class Figures(Collector):
    """The metrics of one manager's group. Thread-safe."""

    def __init__(self, address: bytes) -> None:
        """Ask the manager at `address` whenever the metrics are collected. It need not run."""
        self._address = address
        self._lock = threading.Lock()
        self._families: list[Metric] = []
        self._asked = -KEEP_SECONDS
        self._is_up = True

    def collect(self) -> Iterable[Metric]:
        """Return the metrics. Blocks until the manager answers; without an answer there is only `shmtensor_up`."""
        with self._lock:
            if monotonic() - self._asked >= KEEP_SECONDS:
                self._families = _families(self._ask())
                self._asked = monotonic()
            return self._families

    def _ask(self) -> dict[str, Any] | None:
        """Return the document of STATS, or None. When the manager stops answering, prints that to stderr once."""
        try:
            with Observer(self._address, ANSWER_SECONDS) as observer:
                figures: dict[str, Any] = json.loads(observer.document(protocol.Stats()))
        except (ShmTensorError, OSError) as problem:
            if self._is_up:
                print(f"shmtensor-manager: shmtensor_up is 0: {problem}", file=sys.stderr, flush=True)
            self._is_up = False
            return None
        if not self._is_up:
            shown = os.fsdecode(self._address)
            print(f"shmtensor-manager: shmtensor_up is 1: the manager at {shown} answers", file=sys.stderr, flush=True)
        self._is_up = True
        return figures


def registry(address: bytes) -> CollectorRegistry:
    """Return a registry with the metrics of the manager at `address`. It need not run."""
    made = CollectorRegistry()
    made.register(Figures(address))
    return made


def _gauge(name: str, text: str, value: float | None, label: str | None = None) -> GaugeMetricFamily:
    unit = name.rpartition("_")[2]
    labels = None if label is None else [label]
    return GaugeMetricFamily(f"shmtensor_{name}", text, value, labels, unit if unit in ("bytes", "seconds") else "")


def _families(figures: dict[str, Any] | None) -> list[Metric]:
    """Return the metrics for a document of STATS, or for none."""
    up = _gauge("up", "1: the manager answers; 0: it does not, and there are no other metrics.", figures is not None)
    if figures is None:
        return [up]
    version = {key: str(figures[key]) for key in ("version", "protocol", "layout")}
    holds = _gauge("holds", "Holds of blocks, by clients, tickets (in pickles) and messages (in rings).", None, "kind")
    for kind, count in figures["holds"].items():
        holds.add_metric([kind], count)
    return [
        up,
        InfoMetricFamily("shmtensor_build", "Versions of the manager, its protocol and its memory layout.", version),
        *(_gauge(name, text, figures[key]) for name, key, text in GAUGES),
        *(_gauge(name, text, figures[key]) for name, key, text in LIMITS if figures[key]),
        holds,
        *(_by_name(_gauge(name, text, None, "name"), key, figures["named_rings"]) for name, key, text in RINGS),
        *(_by_name(_gauge(name, text, None, "name"), key, figures["named_stores"]) for name, key, text in STORES),
        *(
            _by_name(CounterMetricFamily(f"shmtensor_{name}", text, labels=["name"]), key, figures["named_stores"])
            for name, key, text in STORE_COUNTERS
        ),
        *(CounterMetricFamily(f"shmtensor_{name}", text, figures[key]) for name, key, text in COUNTERS),
        CounterMetricFamily("shmtensor_takeovers", "Managers that took the group over.", figures["epoch"] - 1),
    ]


def _by_name(
    family: GaugeMetricFamily | CounterMetricFamily, key: str, rows: list[dict[str, Any]]
) -> GaugeMetricFamily | CounterMetricFamily:
    for row in rows:
        if row[key] or not key.startswith("max_"):
            family.add_metric([row["name"].removeprefix("/")], row[key])
    return family
