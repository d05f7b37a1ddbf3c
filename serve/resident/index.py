"""One resident index: everything that one user of one agent may recall, the tenant's world facts aside."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from memory.columns import EPISODIC, NOBODY, NONE, Columns, Entry, speaker_code
from memory.lexical import LexicalIndex
from memory.ports import HalfVectors
from memory.records import MemoryId, SessionId
from memory.terms import Analyzer, words
from serve.resident.vectors import VectorIndex

INDEX_BYTES = 7_000  # of Python objects in an index without memories, measured with tracemalloc
SESSION_BYTES = 160  # a session's id and number in a dictionary, about


class ResidentIndex:
    """Memories as rows: columns, vectors and postings side by side. Not to be shared between threads."""

    def __init__(self, *, dimension: int, analyzer: Analyzer) -> None:
        self.columns = Columns()
        self.vectors = VectorIndex(dimension)
        self.lexical = LexicalIndex()
        self._analyzer = analyzer
        self._sessions: dict[SessionId, int] = {}
        self._names = _Names()

    def __len__(self) -> int:
        return len(self.columns)

    @property
    def nbytes(self) -> int:
        arrays = self.columns.nbytes + self.vectors.nbytes + self.lexical.nbytes
        return INDEX_BYTES + SESSION_BYTES * len(self._sessions) + arrays

    def put(self, entries: Sequence[Entry], vectors: HalfVectors) -> None:
        """Add memories, or replace those with the same ids. ``vectors`` has the shape ``(len(entries), dimension)``."""
        touched = self._take_out([entry.id for entry in entries])
        first = len(self)
        self.columns.append(entries, [self._session_of(entry) for entry in entries])
        self.vectors.append(vectors)
        self.lexical.append([self._analyzer.ids(entry.text) for entry in entries])
        for entry in entries:
            self._names.add(entry.speaker)
        self._link(touched | {int(low) for low in self.columns.low[first:]})

    def remove(self, ids: Sequence[MemoryId]) -> None:
        """Forget memories; unknown ids are ignored."""
        self._link(self._take_out(ids))

    def count_accesses(self, row: int, memory_id: MemoryId, count: int) -> None:
        """Take over what the database has counted, if the memory still lies in that row."""
        if row < len(self) and self.columns.id_of(row) == memory_id:
            self.columns.accesses[row] = count

    def named(self, query: str) -> set[str]:
        """Words of the query that are names of speakers."""
        return {word for word in words(query) if word in self._names}

    def speakers(self, names: Iterable[str]) -> frozenset[int]:
        """Codes of the speakers with one of those words in their name."""
        return frozenset(speaker for name in names for speaker in self._names.speakers(name))

    def _session_of(self, entry: Entry) -> int:
        if entry.session_id is None:
            return NONE
        return self._sessions.setdefault(entry.session_id, len(self._sessions))

    def _take_out(self, ids: Sequence[MemoryId]) -> set[int]:
        """Take rows out; returns the lower halves of the ids whose row went or moved."""
        touched = set()
        for row in sorted(map(int, self.columns.rows_of(ids)), reverse=True):
            touched |= {int(self.columns.low[row]), int(self.columns.low[-1])} | self._around(row)
            self._names.drop(int(self.columns.speaker[row]))
            if row == len(self) - 1:
                self.lexical.remove_last()
            else:
                self.lexical.replace_by_last(row)
            self.vectors.replace_by_last(row)
            self.columns.replace_by_last(row)
        return touched

    def _around(self, row: int) -> set[int]:
        """Neighbours in the session, which will need new ones."""
        near = (self.columns.before[row], self.columns.after[row])
        return {int(self.columns.low[other]) for other in near if NONE < other < len(self)}

    def _link(self, touched: Collection[int]) -> None:
        """Mend the neighbours of rows whose id has one of those lower halves, of their sessions and of their facts."""
        if not touched:
            return
        columns = self.columns
        lows = np.fromiter(touched, dtype=np.uint64, count=len(touched))
        turns = columns.tier <= EPISODIC
        moved = np.isin(columns.low, lows)
        dirty = np.unique(columns.session[moved & turns])
        self._link_turns(np.flatnonzero(turns & np.isin(columns.session, dirty[dirty != NONE])))
        self._link_facts(np.flatnonzero(~turns & (columns.source != 0) & (moved | np.isin(columns.source, lows))))

    def _link_turns(self, rows: NDArray[np.int64]) -> None:
        """Each turn's neighbours are those before and after it in its session, by time, then by id."""
        columns = self.columns
        order = rows[np.lexsort((columns.low[rows], columns.high[rows], columns.created[rows], columns.session[rows]))]
        columns.before[rows] = NONE
        columns.after[rows] = NONE
        earlier, later = order[:-1], order[1:]
        same = columns.session[earlier] == columns.session[later]
        columns.before[later[same]] = earlier[same]
        columns.after[earlier[same]] = later[same]

    def _link_facts(self, rows: NDArray[np.int64]) -> None:
        """A fact's or skill's neighbour is its source, and its session the source's."""
        columns = self.columns
        turns = np.flatnonzero((columns.tier <= EPISODIC) & np.isin(columns.low, columns.source[rows]))
        turns = turns[np.argsort(columns.low[turns])]
        place = np.searchsorted(columns.low[turns], columns.source[rows])
        found = place < len(turns)
        found[found] = columns.low[turns[place[found]]] == columns.source[rows[found]]
        columns.before[rows] = NONE
        columns.session[rows] = NONE
        columns.before[rows[found]] = turns[place[found]]
        columns.session[rows[found]] = columns.session[turns[place[found]]]


class _Names:
    """Words of the names of everybody who speaks, with the speakers' codes."""

    def __init__(self) -> None:
        self._rows: Counter[int] = Counter()  # of each speaker
        self._words: dict[int, list[str]] = {}
        self._speakers: defaultdict[str, set[int]] = defaultdict(set)

    def __contains__(self, word: str) -> bool:
        return word in self._speakers

    def speakers(self, word: str) -> Collection[int]:
        return self._speakers.get(word, ())

    def add(self, name: str | None) -> None:
        speaker = speaker_code(name)
        if name is None or speaker == NOBODY:
            return
        self._rows[speaker] += 1
        if self._rows[speaker] == 1:
            self._words[speaker] = words(name)
            for word in self._words[speaker]:
                self._speakers[word].add(speaker)

    def drop(self, speaker: int) -> None:
        """One row fewer; a name without rows is no name."""
        if speaker == NOBODY:
            return
        self._rows[speaker] -= 1
        if self._rows[speaker]:
            return
        del self._rows[speaker]
        for word in self._words.pop(speaker):
            self._speakers[word].discard(speaker)
            if not self._speakers[word]:
                del self._speakers[word]
