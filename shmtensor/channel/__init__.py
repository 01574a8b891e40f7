"""Queues and broadcasts between machines (docs/channel.md).

    from shmtensor import channel

    jobs = channel.listen("tcp://127.0.0.1:7000", maxsize=100)     # one program
    jobs = channel.connect("tcp://127.0.0.1:7000")                 # others, here or on other machines
    jobs.put(tensor)
    tensor = jobs.get()

Everything is imported on first use, because the guard of a link process, a module of this package, needs none of it.
"""

from __future__ import annotations

from .._loading import later

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..errors import ConnectionLost as ConnectionLost
    from ..ipc.queues import Empty as Empty
    from ..ipc.queues import Full as Full
    from .channel import BroadcastChannel as BroadcastChannel
    from .channel import Channel as Channel
    from .channel import ChannelReader as ChannelReader
    from .channel import ChannelStats as ChannelStats
    from .opening import connect as connect
    from .opening import listen as listen

__all__: list[str] = []
__all__ += later(
    globals(),
    {
        "errors": "ConnectionLost",
        "ipc.queues": "Empty Full",
        "channel.channel": "BroadcastChannel Channel ChannelReader ChannelStats",
        "channel.opening": "connect listen",
    },
)
