"""Ranking: the five factors of many memories at once, and each statement once.

The numbers are those of ``memory.scoring.score``; the duplicates that go are always the lower ranked.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from memory.columns import EPISODIC, NOBODY, TIERS, Columns
from memory.decay import FREQUENT, frequency
from memory.lexical import Scores
from memory.ports import Vectors
from memory.relevance import Mask
from memory.scoring import TYPE_BONUS, ScoreParts, ScoringWeights

Factor = NDArray[np.float64]
RowNumbers = NDArray[np.int64]

DUPLICATE_SIMILARITY = 0.97  # cosine; above it a fact and its source, or two facts, say the same
DAY_US = 86_400_000_000

_BLOCK = 32  # rows compared in one matrix product
_FREQUENCIES = np.array([frequency(count) for count in range(FREQUENT + 1)])
_BONUSES = np.array([TYPE_BONUS[tier] for tier in TIERS])


@dataclass(frozen=True, kw_only=True, slots=True)
class Factors:
    """The five factors, each of shape ``(rows,)`` and in [0, 1]."""

    relevance: Factor
    recency: Factor
    importance: Factor
    frequency: Factor
    type_bonus: Factor

    @classmethod
    def of(cls, columns: Columns, relevance: Scores, *, now_us: int, half_life_days: float) -> Factors:
        age_days = np.maximum(0, now_us - columns.created) / DAY_US
        return cls(
            relevance=relevance.astype(np.float64),
            recency=np.exp2(-age_days / half_life_days),
            importance=columns.importance.astype(np.float64),
            frequency=_FREQUENCIES[np.minimum(columns.accesses, FREQUENT)],
            type_bonus=_BONUSES[columns.tier],
        )

    def total(self, weights: ScoringWeights) -> Factor:
        return (
            weights.relevance * self.relevance
            + weights.recency * self.recency
            + weights.importance * self.importance
            + weights.frequency * self.frequency
            + weights.type_bonus * self.type_bonus
        )

    def parts(self, row: int, total: float) -> ScoreParts:
        return ScoreParts(
            relevance=float(self.relevance[row]),
            recency=float(self.recency[row]),
            importance=float(self.importance[row]),
            frequency=float(self.frequency[row]),
            type_bonus=float(self.type_bonus[row]),
            total=total,
        )


def best(
    totals: Factor,
    columns: Columns,
    allowed: Mask,
    *,
    limit: int,
    vectors: Callable[[RowNumbers], Vectors],
    admitted: Callable[[Vectors], Mask],
    similarity: float = DUPLICATE_SIMILARITY,
) -> list[int]:
    """The best ``limit`` allowed rows in order, each statement once.

    ``vectors`` gives the unit vectors of rows; ``admitted`` says by their vectors which rows are near enough. Both see
    only rows that are high enough in the ranking to matter.
    """
    if limit <= 0:
        return []
    rows = np.flatnonzero(allowed)
    depth = 2 * limit + _BLOCK
    while True:
        top = _top(rows, totals, columns, depth)
        near = vectors(top)
        passed = admitted(near)
        kept = _Sayings.of(columns, top[passed], near[passed]).distinct(limit, similarity)
        if len(kept) >= limit or len(top) == len(rows):
            return [int(row) for row in top[passed][kept]]
        depth *= 4


def _top(rows: RowNumbers, totals: Factor, columns: Columns, depth: int) -> RowNumbers:
    """The best ``depth`` rows and whatever ties with the last of them, in order.

    Equal ones newest first, then by id, so that the order never depends on where a row lies.
    """
    if len(rows) > depth:
        scores = totals[rows]
        rows = rows[scores >= np.partition(scores, len(rows) - depth)[len(rows) - depth]]
    order = np.lexsort((columns.low[rows], columns.high[rows], -columns.created[rows], -totals[rows]))
    return rows[order]


@dataclass(frozen=True, kw_only=True, slots=True)
class _Sayings:
    """What decides on duplicates, one row a memory, best first."""

    vectors: Vectors
    known: Mask  # whether the row has a vector
    event: Mask  # something that happened, in contrast to a statement
    words: NDArray[np.uint64]
    speaker: NDArray[np.uint64]
    user: NDArray[np.uint64]

    @classmethod
    def of(cls, columns: Columns, rows: RowNumbers, vectors: Vectors) -> _Sayings:
        return cls(
            vectors=vectors,
            known=np.any(vectors, axis=1),
            event=columns.tier[rows] <= EPISODIC,
            words=columns.words[rows],
            speaker=columns.speaker[rows],
            user=columns.user[rows],
        )

    def distinct(self, limit: int, similarity: float) -> list[int]:
        """Walk down the ranking and keep the positions of what says something new, ``limit`` at most.

        A block at a time is compared with what was kept, in one matrix product: 1,000 rows take milliseconds.
        """
        kept: list[int] = []
        for start in range(0, len(self.vectors), _BLOCK):
            block = range(start, min(start + _BLOCK, len(self.vectors)))
            kept += self._new_ones(kept, block, similarity)
            if len(kept) >= limit:
                break
        return kept[:limit]

    def _new_ones(self, kept: list[int], block: range, similarity: float) -> list[int]:
        """The positions of ``block`` that repeat neither ``kept`` nor a better one of the block."""
        same = self._same(np.array(block, dtype=np.int64), np.array([*kept, *block], dtype=np.int64), similarity)
        repeats, better = same[:, : len(kept)].any(axis=1), np.tril(same[:, len(kept) :], -1)
        new: Mask = np.logical_not(repeats | better.any(axis=1))
        # What repeats only rows that are no new ones themselves is new after all.
        for row in np.flatnonzero(~new & ~repeats):
            new[row] = not np.any(better[row] & new)
        return [position for row, position in enumerate(block) if new[row]]

    def _same(self, rows: RowNumbers, others: RowNumbers, similarity: float) -> Mask:
        """Which rows say the same as which others.

        Two events do so only when the same speaker used the same words; a statement repeats whatever has its words
        or its meaning. What belongs to two different users is never the same.
        """
        words = _equal(self.words, rows, others)
        repeated = words & _equal(self.speaker, rows, others)
        close = self.vectors[rows] @ self.vectors[others].T >= similarity
        close &= self.known[rows][:, None] & self.known[others]
        said = np.where(self.event[rows][:, None] & self.event[others], repeated, words | close)
        anyone = (self.user[rows] == NOBODY)[:, None] | (self.user[others] == NOBODY)
        return np.asarray(said & (anyone | _equal(self.user, rows, others)), dtype=np.bool_)


def _equal(codes: NDArray[np.uint64], rows: RowNumbers, others: RowNumbers) -> Mask:
    return np.asarray(codes[rows][:, None] == codes[others], dtype=np.bool_)
