"""Queues and broadcasts between machines (docs/channel.md).

    from shmtensor import channel

    jobs = channel.listen("tcp://127.0.0.1:7000", maxsize=100)     # one program
    jobs = channel.connect("tcp://127.0.0.1:7000")                 # others, here or on other machines
    jobs.put(tensor)
    tensor = jobs.get()
"""

from __future__ import annotations

from ..errors import ConnectionLost
from ..ipc.queues import Empty, Full
from .channel import BroadcastChannel, Channel, ChannelStats
from .opening import connect, listen

__all__ = ["BroadcastChannel", "Channel", "ChannelStats", "ConnectionLost", "Empty", "Full", "connect", "listen"]
