"""The state of one end of a channel: one block of shared memory, written by its link process.

Processes read it. If the link process is killed, the next one continues from it. All words are 8 bytes.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from enum import IntEnum
from typing import Any, Final

import numpy as np

from .._native import Block, atomic_fetch_add
from ..errors import InvalidArgument

_MAGIC: Final = int.from_bytes(b"SHMCHNL1", "little")
_WORD: Final = 8
_TEXT_BYTES: Final = 1024
_CONFIG_BYTES: Final = 4096
_HEADER_WORDS: Final = 32
_ASKED: Final = 24  # in its own cache line
_ROW_WORDS: Final = 12
_TEXT_AT: Final = _HEADER_WORDS * _WORD
_CONFIG_AT: Final = _TEXT_AT + _TEXT_BYTES
_ROWS_AT: Final = _CONFIG_AT + _CONFIG_BYTES
NONCE_BYTES: Final = 16


class Status(IntEnum):
    """The status of an end."""

    starting = 0
    """It has not listened or connected so far."""
    working = 1
    lost = 2
    """Lost permanently; the text has the reason."""


class _Word:
    """A word of the state as an attribute."""

    def __init__(self, index: int) -> None:
        self._index = index

    def __get__(self, state: State, owner: type) -> int:
        return state._words[self._index]

    def __set__(self, state: State, value: int) -> None:
        state._words[self._index] = value


class State:
    """The state of one end. Only its link process writes, except for `wanted` and the counter of `ask`."""

    status: _Word = _Word(1)
    port: _Word = _Word(2)
    """Port of a listening end."""
    connected: _Word = _Word(3)
    """Number of other ends that are connected at the moment."""
    wanted: _Word = _Word(5)
    """1: a process of this end waits for messages without `get`."""
    subscribed: _Word = _Word(6)
    """1: the other end was notified of that."""
    sessions: _Word = _Word(7)
    """Sessions so far; the last number that was assigned."""
    lost_messages: _Word = _Word(8)
    """Messages that were dropped because their destination ended."""
    # The move of messages into the window that is in progress; `moving_last`, written last, is the commit number of the
    # last message.
    moving_first: _Word = _Word(9)
    moving_last: _Word = _Word(10)
    moving_beyond: _Word = _Word(11)
    """For a broadcast: the number of the message after them."""
    link_pid: _Word = _Word(12)
    returning: _Word = _Word(14)
    """1: no process has this end any more, and the messages in its inbox go back to the other end."""
    ended: _Word = _Word(13)
    """1: the link process has ended in order, and is not restarted."""

    def __init__(self, block: Block, rows: int | None = None) -> None:
        """Open the state in a block; `rows`: write a new state for this many sessions."""
        self.block = block
        memory = memoryview(block).cast("B")
        self._bytes = memory
        self._words = memory.cast("Q")
        self._asked = block.array(np.dtype(np.int64), (1,), _ASKED * _WORD)
        if rows is not None:
            memory[:] = bytes(len(memory))
            memory[16 * _WORD : 16 * _WORD + NONCE_BYTES] = os.urandom(NONCE_BYTES)
            self._words[0] = _MAGIC
        elif len(memory) < _ROWS_AT or self._words[0] != _MAGIC:
            raise InvalidArgument(
                "the block is not the state of a channel of this version; "
                "use the same version of shmtensor in all processes of the group"
            )

    def ask(self, messages: int) -> None:
        """Add to the count of messages that processes of this end have requested; negative: requests are withdrawn."""
        atomic_fetch_add(self._asked, 0, messages, "seq_cst")

    @property
    def asked(self) -> int:
        """Total number of messages that processes of this end have requested."""
        return max(0, int(self._asked[0]))

    @staticmethod
    def nbytes(rows: int) -> int:
        """Return the size of the block of a state."""
        return _ROWS_AT + rows * _ROW_WORDS * _WORD

    @property
    def nonce(self) -> bytes:
        """A random number that identifies this end; only processes that can read its memory know it."""
        return bytes(self._bytes[16 * _WORD : 16 * _WORD + NONCE_BYTES])

    @property
    def text(self) -> str:
        """The reason for its loss, or its current problem."""
        return bytes(self._bytes[_TEXT_AT:_CONFIG_AT]).partition(b"\0")[0].decode("utf-8", "replace")

    @text.setter
    def text(self, text: str) -> None:
        data = text.encode("utf-8", "replace")[: _TEXT_BYTES - 1]
        self._bytes[_TEXT_AT:_CONFIG_AT] = data.ljust(_TEXT_BYTES, b"\0")

    def lose(self, reason: str) -> None:
        """Mark the end as lost."""
        self.text = reason
        self.status = Status.lost

    @property
    def config(self) -> dict[str, Any]:
        """The configuration with which the end was created."""
        found: dict[str, Any] = json.loads(bytes(self._bytes[_CONFIG_AT:_ROWS_AT]).rstrip(b"\0"))
        return found

    @config.setter
    def config(self, config: dict[str, Any]) -> None:
        data = json.dumps(config).encode()
        if len(data) > _CONFIG_BYTES:
            raise InvalidArgument(f"the addresses and paths of a channel take {len(data)} of {_CONFIG_BYTES} bytes")
        self._bytes[_CONFIG_AT:_ROWS_AT] = data.ljust(_CONFIG_BYTES, b"\0")

    def rows(self) -> Iterator[Row]:
        """Return the rows of all sessions, used or not."""
        return (Row(self._words, at) for at in range(_ROWS_AT // _WORD, len(self._words), _ROW_WORDS))


class _RowWord:
    def __init__(self, index: int) -> None:
        self._index = index

    def __get__(self, row: Row, owner: type) -> int:
        return row._words[row._at + self._index]

    def __set__(self, row: Row, value: int) -> None:
        row._words[row._at + self._index] = value


class Row:
    """The state of one session."""

    number: _RowWord = _RowWord(0)
    """Identifies the session at this end; 0: the row is free. Written last, cleared first."""
    put: _RowWord = _RowWord(3)
    """The last message that was received and put."""
    sent: _RowWord = _RowWord(4)
    """The last message that was given a sequence number."""
    flags: _RowWord = _RowWord(5)
    incarnation: _RowWord = _RowWord(6)
    """Identifies the end, among the successive ends of a named stream."""

    welcomed: _RowWord = _RowWord(7)
    """The number of the session at the listening end, once that has sent WELCOME."""

    check: _RowWord = _RowWord(8)
    """Identifies the listening end that has sent WELCOME."""

    NAMED: Final = 1
    CONSUMER: Final = 2

    def __init__(self, words: memoryview, at: int) -> None:
        self._words = words
        self._at = at

    @property
    def id(self) -> bytes:
        """The session's id, 16 bytes."""
        return bytes(self._words[self._at + 1 : self._at + 3].cast("B"))

    def begin(self, number: int, session: bytes, incarnation: int, flags: int) -> None:
        """Use the row for a new session."""
        self.number = 0
        high, low = session[:_WORD], session[_WORD:]
        self._words[self._at + 1] = int.from_bytes(high, "little")
        self._words[self._at + 2] = int.from_bytes(low, "little")
        self.put = self.sent = self.welcomed = self.check = 0
        self.incarnation = incarnation
        self.flags = flags
        self.number = number

    def end(self) -> None:
        """Free the row."""
        self.number = 0

    def flag(self, flag: int, value: bool = True) -> None:
        """Set or clear a flag."""
        self.flags = self.flags | flag if value else self.flags & ~flag
