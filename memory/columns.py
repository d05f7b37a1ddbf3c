"""What ranking must know of each memory, as arrays: one row a memory, rows in no order."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from memory.records import MemoryId, Outcome, SessionId, Tier, UserId
from memory.scoring import boosted

TIERS = tuple(Tier)  # a tier's number is its place here
EPISODIC = TIERS.index(Tier.EPISODIC)
WORKING = TIERS.index(Tier.WORKING)
NEVER = np.iinfo(np.int64).max
NOBODY = 0  # speaker or user of a row that has none
NONE = -1  # row or session that does not exist
GROWTH = 1.125  # arrays grow by an eighth: a copy now and then, and little memory that waits

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_TYPES: dict[str, Any] = {
    "high": np.uint64,
    "low": np.uint64,
    "created": np.int64,
    "expires": np.int64,
    "importance": np.float32,
    "accesses": np.int32,
    "tier": np.uint8,
    "session": np.int32,
    "speaker": np.uint64,
    "user": np.uint64,
    "words": np.uint64,
    "source": np.uint64,
    "before": np.int32,
    "after": np.int32,
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """One memory on its way into an index."""

    id: MemoryId
    tier: Tier
    text: str  # what its words are counted from
    words: str  # hexadecimal content hash: equal texts, equal hashes
    created_at: datetime
    importance: float  # 0.0 - 1.0
    outcome: Outcome | None = None
    access_count: int = 0
    expires_at: datetime | None = None
    session_id: SessionId | None = None  # of an episode
    speaker: str | None = None
    user_id: UserId | None = None
    source_id: MemoryId | None = None  # the episode that a fact or skill was derived from


class Columns:
    """Growable arrays, all of shape ``(len,)``."""

    high: NDArray[np.uint64]  # the upper half of the memory's id
    low: NDArray[np.uint64]
    created: NDArray[np.int64]  # microseconds since 1970
    expires: NDArray[np.int64]  # ``NEVER`` for a permanent one
    importance: NDArray[np.float32]  # boosted by success
    accesses: NDArray[np.int32]
    tier: NDArray[np.uint8]  # place in ``TIERS``
    session: NDArray[np.int32]  # number of the session; ``NONE`` without
    speaker: NDArray[np.uint64]  # ``code`` of the speaker; ``NOBODY`` without
    user: NDArray[np.uint64]
    words: NDArray[np.uint64]  # of the content hash
    source: NDArray[np.uint64]  # lower half of the source episode's id; 0 without
    before: NDArray[np.int32]  # row of the turn before in the session; of a fact or skill, its source
    after: NDArray[np.int32]

    def __init__(self) -> None:
        self._length = 0
        for name, kind in _TYPES.items():
            setattr(self, name, np.zeros(0, dtype=kind))
        self._storage = {name: getattr(self, name) for name in _TYPES}

    def __len__(self) -> int:
        return self._length

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in self._storage.values())

    def append(self, entries: Sequence[Entry], sessions: Sequence[int]) -> None:
        """Add rows at the end, with the numbers of their sessions; they have no neighbours yet."""
        if not entries:
            return
        first = self._length
        self._resize(first + len(entries))
        values = zip(*(_row(entry, session) for entry, session in zip(entries, sessions, strict=True)), strict=True)
        for name, column in zip(_TYPES, values, strict=True):
            getattr(self, name)[first:] = column

    def replace_by_last(self, row: int) -> None:
        """Take ``row`` out and give its number to the last row; the neighbours are the caller's to mend."""
        for name in _TYPES:
            column = getattr(self, name)
            column[row] = column[-1]
        self._resize(self._length - 1)

    def rows_of(self, ids: Sequence[MemoryId]) -> NDArray[np.int64]:
        """Rows of those ids that are here, in no order."""
        wanted = np.array([halves(each) for each in ids], dtype=np.uint64).reshape(-1, 2)
        rows = np.flatnonzero(np.isin(self.low, wanted[:, 1]))
        here = {(int(high), int(low)) for high, low in wanted}
        return np.array([row for row in rows if (int(self.high[row]), int(self.low[row])) in here], dtype=np.int64)

    def id_of(self, row: int) -> MemoryId:
        return MemoryId(UUID(int=(int(self.high[row]) << 64) | int(self.low[row])))

    def _resize(self, length: int) -> None:
        self._length = length
        for name, array in self._storage.items():
            if length > len(array):
                grown = np.zeros(max(length, int(len(array) * GROWTH)), dtype=array.dtype)
                grown[: len(array)] = array
                self._storage[name] = grown
            setattr(self, name, self._storage[name][:length])

    @classmethod
    def joined(cls, parts: Sequence[Columns]) -> Columns:
        """One after the other; neighbours and sessions keep pointing to what they pointed to."""
        if len(parts) == 1:
            return parts[0]
        whole = cls()
        whole._resize(sum(map(len, parts)))
        rows = sessions = 0
        for part in parts:
            here = slice(rows, rows + len(part))
            for name in _TYPES:
                getattr(whole, name)[here] = getattr(part, name)
            for name, shift in (("before", rows), ("after", rows), ("session", sessions)):
                column = getattr(whole, name)[here]
                column[column != NONE] += shift
            rows += len(part)
            sessions += int(part.session.max(initial=NONE)) + 1
        return whole


def _row(entry: Entry, session: int) -> tuple[int | float, ...]:
    """In the order of ``_TYPES``."""
    return (
        *halves(entry.id),
        microseconds(entry.created_at),
        NEVER if entry.expires_at is None else microseconds(entry.expires_at),
        boosted(entry.importance, entry.outcome),
        entry.access_count,
        TIERS.index(entry.tier),
        session,
        speaker_code(entry.speaker),
        code(entry.user_id),
        int(entry.words[:16], 16),
        0 if entry.source_id is None else halves(entry.source_id)[1],
        NONE,
        NONE,
    )


def halves(memory_id: MemoryId) -> tuple[int, int]:
    """The id as two numbers of 64 bits."""
    return memory_id.int >> 64, memory_id.int & (2**64 - 1)


def microseconds(moment: datetime) -> int:
    """Since 1970; exact, which a float of seconds is not."""
    return (moment - _EPOCH) // _MICROSECOND


def code(name: str | None) -> int:
    """A number of 64 bits that stands for exactly this id; ``NOBODY`` for none."""
    if name is None:
        return NOBODY
    return int.from_bytes(hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little")


def speaker_code(name: str | None) -> int:
    """The same for a person's name, whatever its case."""
    return code(None if name is None else name.casefold())
