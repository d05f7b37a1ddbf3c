"""A lexical index: BM25 over rows that come, go and move.

Postings live in segments that are merged as they grow (a log-structured merge): adding a few rows costs their own size,
and a term is looked up in a handful of sorted arrays. A row that goes is cut out of its postings at once, so a score
is always that of an index built from the rows that are left.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from memory.columns import GROWTH
from memory.terms import TermIds

Scores = NDArray[np.float32]
Rows = NDArray[np.int32]

K1, B = 1.2, 0.75  # Lucene's defaults for BM25
MAX_COUNT = 255  # of a term in one text; above it, BM25 is flat


@dataclass(slots=True)
class _Segment:
    """Postings of some rows: the rows of ``terms[i]`` are ``rows[starts[i]:starts[i + 1]]``."""

    terms: TermIds  # sorted, distinct
    starts: NDArray[np.int32]
    rows: Rows
    counts: NDArray[np.uint8]  # how often the term stands in the row; 0 for a row that went

    @classmethod
    def of(cls, terms: TermIds, rows: Rows, counts: NDArray[np.uint8]) -> _Segment:
        """From postings in any order."""
        order = np.lexsort((rows, terms))
        distinct, starts = np.unique(terms[order], return_index=True)
        ends = np.append(starts, len(terms)).astype(np.int32)
        return cls(distinct, ends, rows[order], counts[order])

    @property
    def nbytes(self) -> int:
        return sum(part.nbytes for part in (self.terms, self.starts, self.rows, self.counts))

    def range_of(self, term: int) -> slice:
        place = int(np.searchsorted(self.terms, term))
        if place == len(self.terms) or self.terms[place] != term:
            return slice(0, 0)
        return slice(int(self.starts[place]), int(self.starts[place + 1]))

    def live(self) -> tuple[TermIds, Rows, NDArray[np.uint8]]:
        kept = self.counts > 0
        repeated = np.repeat(self.terms, np.diff(self.starts))
        return repeated[kept], self.rows[kept], self.counts[kept]


@dataclass(frozen=True, slots=True)
class Postings:
    """Where one query term stands."""

    rows: Rows
    counts: NDArray[np.float32]


class LexicalIndex:
    """Rows are numbers that the caller gives, dense from 0."""

    def __init__(self) -> None:
        self._segments: list[_Segment] = []
        self._lengths = np.zeros(0, dtype=np.float32)  # terms of each row
        self._rows = 0

    @property
    def nbytes(self) -> int:
        return self._lengths.nbytes + sum(segment.nbytes for segment in self._segments)

    @property
    def lengths(self) -> NDArray[np.float32]:
        """Terms of each row, of shape ``(rows,)``."""
        return self._lengths[: self._rows]

    def append(self, texts: Sequence[TermIds]) -> None:
        """Give the texts the next rows."""
        if not texts:
            return
        first, self._rows = self._rows, self._rows + len(texts)
        if self._rows > len(self._lengths):
            grown = np.zeros(max(self._rows, int(len(self._lengths) * GROWTH)), dtype=np.float32)
            grown[:first] = self._lengths[:first]
            self._lengths = grown
        sizes = np.array([len(text) for text in texts])
        self._lengths[first : self._rows] = sizes
        rows = np.repeat(np.arange(first, self._rows, dtype=np.int32), sizes)
        pairs, counts = _counted(np.concatenate(texts), rows)
        if len(counts):
            self._segments.append(_Segment.of(*pairs, counts))
            self._merge()

    def remove_last(self) -> None:
        """Take the last row out."""
        self._rows -= 1
        self._cut(self._rows)

    def replace_by_last(self, row: int) -> None:
        """Take ``row`` out and give its number to the last row."""
        last = self._rows - 1
        self._cut(row)
        for segment in self._segments:
            segment.rows[segment.rows == last] = row
        self._lengths[row] = self._lengths[last]
        self._rows = last

    def postings(self, term: int) -> Postings:
        """The live postings of a term, in no order."""
        found = [(segment, segment.range_of(term)) for segment in self._segments]
        rows = [segment.rows[where][segment.counts[where] > 0] for segment, where in found]
        counts = [segment.counts[where][segment.counts[where] > 0] for segment, where in found]
        if not rows:
            return Postings(np.zeros(0, dtype=np.int32), np.zeros(0, dtype=np.float32))
        return Postings(np.concatenate(rows), np.concatenate(counts).astype(np.float32))

    def _cut(self, row: int) -> None:
        """The postings stay as holes until their segment is merged, without the row's number."""
        for segment in self._segments:
            mine = segment.rows == row
            segment.counts[mine] = 0
            segment.rows[mine] = -1

    def _merge(self) -> None:
        """A segment is merged into its left neighbour unless that one is at least twice as large."""
        while len(self._segments) > 1 and len(self._segments[-2].rows) < 2 * len(self._segments[-1].rows):
            right, left = self._segments.pop().live(), self._segments.pop().live()
            terms, rows = np.concatenate([left[0], right[0]]), np.concatenate([left[1], right[1]])
            self._segments.append(_Segment.of(terms, rows, np.concatenate([left[2], right[2]])))


def _counted(terms: TermIds, rows: Rows) -> tuple[tuple[TermIds, Rows], NDArray[np.uint8]]:
    """Distinct pairs of term and row, and how often each occurs."""
    order = np.lexsort((rows, terms))
    terms, rows = terms[order], rows[order]
    first = np.ones(len(terms), dtype=np.bool_)
    first[1:] = (terms[1:] != terms[:-1]) | (rows[1:] != rows[:-1])
    places = np.flatnonzero(first)
    counts = np.diff(np.append(places, len(terms)))
    return (terms[places], rows[places]), np.minimum(counts, MAX_COUNT).astype(np.uint8)


def idf(containing: int, total: int) -> float:
    """Lucene's variant (Kamphuis et al. 2020): never negative."""
    return float(np.log1p((total - containing + 0.5) / (containing + 0.5)))


def saturated(counts: NDArray[np.float32], lengths: NDArray[np.float32], average: float) -> Scores:
    """BM25's term frequency part, below 1, of texts with ``lengths`` terms."""
    norm = K1 * (1 - B + B * lengths / average) if average else np.float32(K1)
    return np.asarray(counts / (counts + norm), dtype=np.float32)
