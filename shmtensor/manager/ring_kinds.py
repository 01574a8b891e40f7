"""Kinds of rings in shared memory: the numbers in their headers, and the names of the classes."""

from __future__ import annotations

SIMPLE, QUEUE, JOINABLE, BROADCAST, STORE = range(1, 6)
NAMES = {SIMPLE: "SimpleQueue", QUEUE: "Queue", JOINABLE: "JoinableQueue", BROADCAST: "Broadcast", STORE: "Store"}
