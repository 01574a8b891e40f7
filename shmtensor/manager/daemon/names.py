"""Names of blocks: those that the manager generates on EXPORT, and those that clients choose with BIND.

NAME   by_name[n] == t  for each by_block[t] == n; the other names were bound by users; givers has every name
"""

from __future__ import annotations

from os import urandom

from shmtensor.manager import protocol
from shmtensor.manager.daemon.records import Refusal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from shmtensor.manager.daemon.records import BlockId, Client, Outside

PURGE_NAMES = 1_024
"""The table of names is never purged below this size."""
OWN_NAMES = b"/torch_"
"""Prefix of the names that the manager generates."""


class Names:
    """The names of blocks. Single-threaded; no call blocks."""

    def __init__(
        self,
        clients: dict[int, Client],
        outside: Outside,
        live_bytes: Callable[[BlockId], int | None],
        check_live: Callable[[BlockId], None],
    ) -> None:
        """Start without names.

        Args:
            clients: the manager's clients by slot.
            outside: records names in the journal.
            live_bytes: returns the size of a live block, else None.
            check_live: raises Refusal unless a block is live.
        """
        self.by_name: dict[bytes, BlockId] = {}
        self.by_block: dict[BlockId, bytes] = {}
        self.givers: dict[bytes, tuple[int, int]] = {}  # name -> slot and generation of the client that asked for it
        self._clients = clients
        self._outside = outside
        self._live_bytes = live_bytes
        self._check_live = check_live
        self._purge_at = PURGE_NAMES

    def adopt(self, names: dict[bytes, tuple[BlockId, tuple[int, int]]]) -> None:
        """Keep those names of the previous manager whose blocks are live."""
        for name, (triple, giver) in names.items():
            if self._live_bytes(triple) is not None:
                self.by_name[name], self.givers[name] = triple, giver
                if name.startswith(OWN_NAMES):
                    self.by_block[triple] = name

    def living(self) -> dict[bytes, BlockId]:
        """Return the names of live blocks. Names of freed blocks stay known, so that LOOKUP can answer STALE."""
        return {name: triple for name, triple in self.by_name.items() if self._live_bytes(triple) is not None}

    def _name(self, name: bytes, triple: BlockId, slot: int) -> None:
        """Bind a name to a block. The client in `slot` can take it back."""
        if len(self.by_name) >= self._purge_at:
            self.purge()
        giver = slot, self._clients[slot].word >> 32
        self._outside.name(name, triple, giver)
        self.by_name[name], self.givers[name] = triple, giver

    def export(self, number: int, block: int, generation: int, slot: int) -> bytes:
        """Return the name of a live block; generate one for the client in `slot` if it has none. Raises Refusal."""
        triple = (number, block, generation)
        self._check_live(triple)
        name = self.by_block.get(triple)
        if name is not None:
            return name
        name = OWN_NAMES + b"%d_%d" % (self._clients[slot].pid, int.from_bytes(urandom(8), "little") >> 1)
        self._name(name, triple, slot)
        self.by_block[triple] = name
        return name

    def bind(self, name: bytes, number: int, block: int, generation: int, slot: int) -> None:
        """Bind a name that the client in `slot` chose to a live block. Raises Refusal: the name is taken."""
        shown = name.decode("ascii", "replace")
        if name.startswith(OWN_NAMES):
            raise Refusal(
                protocol.INVALID,
                f"the name {shown} begins with {OWN_NAMES.decode()}, which is reserved for the manager; choose another",
            )
        triple = (number, block, generation)
        self._check_live(triple)
        known = self.by_name.get(name)
        if known == triple:  # the client repeats its request, because the previous manager's reply was lost
            return
        if known is not None and self._live_bytes(known) is not None:
            raise Refusal(
                protocol.EXISTS,
                f"the name {shown} is already bound to another object; open that one or choose another name",
            )
        self._name(name, triple, slot)

    def lookup(self, name: bytes) -> tuple[int, int, int, int]:
        """(segment, block, generation, bytes) of a name. Raises Refusal."""
        triple = self.by_name.get(name)
        if triple is None:
            raise Refusal(
                protocol.UNKNOWN,
                f"no block is named {name.decode('ascii', 'replace')} here: the manager never gave out the name, or it "
                "was released; check the manager address in the handle, and that its sender is still running",
            )
        nbytes = self._live_bytes(triple)
        if nbytes is None:
            raise Refusal(
                protocol.STALE,
                f"the block named {name.decode('ascii', 'replace')} has been freed; the sender must keep it until "
                "the receiver has opened it",
            )
        return (*triple, nbytes)

    def unexport(self, name: bytes, slot: int) -> None:
        """Forget a name for the client in `slot`. Raises Refusal."""
        shown = name.decode("ascii", "replace")
        if name not in self.by_name:
            raise Refusal(protocol.UNKNOWN, f"no block is named {shown} here")
        giver, generation = self.givers[name]
        client = self._clients.get(giver)
        if giver != slot and client is not None and client.word >> 32 == generation:
            raise Refusal(
                protocol.DENIED,
                f"the name {shown} belongs to pid {client.pid} (slot {giver}), not to slot {slot}; only that process "
                "can release it while it is running",
            )
        self._forget(name)

    def _forget(self, name: bytes) -> None:
        triple = self.by_name.pop(name)
        del self.givers[name]
        self._outside.forget(name)
        if self.by_block.get(triple) == name:
            del self.by_block[triple]

    def purge(self) -> int:
        """Forget the names of freed blocks; returns their number."""
        stale = [name for name, triple in self.by_name.items() if self._live_bytes(triple) is None]
        for name in stale:
            self._forget(name)
        self._purge_at = max(PURGE_NAMES, 2 * len(self.by_name))
        return len(stale)
