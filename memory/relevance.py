"""Relevance: what a query and a memory have in common.

By meaning (cosine), by words (BM25), and by what stands around: the turns next to it, its session, who speaks, when it
happened. Conversation needs the latter: the turn that answers "What did she adopt?" may only say "A puppy, finally!".
What each kind of evidence is worth is in ``docs/discussions/recall.md``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from memory.columns import EPISODIC, NONE, Columns
from memory.lexical import LexicalIndex, Postings, Scores, idf, saturated

Mask = NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True, slots=True)
class Blend:
    """What each kind of evidence is worth."""

    dense: float = 0.5  # share of meaning
    lexical: float = 0.5  # share of words
    neighbours: tuple[float, ...] = (0.3, 0.1)  # the turns next to a turn, those next to them, and so on
    session: float = 0.2  # the words of a turn's whole session
    participant: float = 0.2  # having been said by somebody whom the query names
    period: float = 0.2  # having happened when the query says
    contrast: float = 2.0  # exponent that keeps the best apart from the many that are somewhat alike


BLEND = Blend()


@dataclass(frozen=True, kw_only=True, slots=True)
class Evidence:
    """One value a row, zero where there is nothing; each at most 1."""

    dense: Scores
    lexical: Scores
    session: Scores
    spoken: Mask | None = None
    dated: Mask | None = None


def relevance(evidence: Evidence, columns: Columns, allowed: Mask, blend: Blend = BLEND) -> Scores:
    """Of every allowed row, in [0, 1]: 1 for the best, 0 for the worst; the others are 0."""
    fused = np.float32(blend.dense) * evidence.dense + np.float32(blend.lexical) * evidence.lexical
    smooth = _smoothed(fused, columns, blend.neighbours)
    total = _spread(smooth, allowed) + np.float32(blend.session) * evidence.session
    for mask, weight in ((evidence.spoken, blend.participant), (evidence.dated, blend.period)):
        if mask is not None:
            total += np.float32(weight) * mask
    return np.asarray(_spread(total, allowed) ** np.float32(blend.contrast), dtype=np.float32)


def dense_evidence(size: int, rows: NDArray[np.int64], cosines: Scores) -> Scores:
    """From the farthest of the nearest to the nearest; a single row keeps its cosine."""
    scores = np.zeros(size, dtype=np.float32)
    if len(rows):
        low, high = float(cosines.min()), float(cosines.max())
        scores[rows] = (cosines - low) / (high - low) if high > low else np.clip(cosines, 0.0, 1.0)
    return scores


def lexical_evidence(
    parts: Sequence[LexicalIndex], terms: Mapping[int, int], columns: Columns, allowed: Mask
) -> tuple[Scores, Scores]:
    """BM25 of each row, and of each row's whole session, both as a share of the best allowed row's.

    ``terms`` says how often each term stands in the query. A session's text is that of its turns.
    """
    lengths = np.concatenate([part.lengths for part in parts])
    sessions = _Sessions.of(columns, lengths)
    average = float(lengths.mean()) if len(lengths) else 0.0
    by_row = np.zeros(len(lengths), dtype=np.float32)
    by_session = np.zeros(sessions.count, dtype=np.float32)
    for term, times in terms.items():
        found = _joined(parts, term)
        if len(found.rows):
            weight = np.float32(times * idf(len(found.rows), len(lengths)))
            by_row[found.rows] += weight * saturated(found.counts, lengths[found.rows], average)
            by_session += np.float32(times) * sessions.scores(found)
    of_session = np.zeros(len(lengths), dtype=np.float32)
    inside = columns.session != NONE
    of_session[inside] = by_session[columns.session[inside]]
    return _share_of_best(by_row, allowed), _share_of_best(of_session, allowed)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Sessions:
    """Sessions as texts."""

    count: int
    live: int  # sessions with at least one row
    number: NDArray[np.int32]  # of each turn's session
    lengths: NDArray[np.float32]  # terms of each session
    average: float

    @classmethod
    def of(cls, columns: Columns, lengths: NDArray[np.float32]) -> _Sessions:
        count = int(columns.session.max(initial=NONE)) + 1
        number = np.where(columns.tier <= EPISODIC, columns.session, np.int32(NONE))
        inside = number != NONE
        totals = np.bincount(number[inside], weights=lengths[inside], minlength=count).astype(np.float32)
        live = int(np.count_nonzero(np.bincount(number[inside], minlength=count)))
        average = float(totals.sum() / live) if live else 0.0
        return cls(count=count, live=live, number=number, lengths=totals, average=average)

    def scores(self, found: Postings) -> Scores:
        """BM25 of each session for one term."""
        number = self.number[found.rows]
        inside = number != NONE
        counts = np.bincount(number[inside], weights=found.counts[inside], minlength=self.count).astype(np.float32)
        weight = idf(int(np.count_nonzero(counts)), self.live)
        return np.float32(weight) * saturated(counts, self.lengths, self.average)


def _joined(parts: Sequence[LexicalIndex], term: int) -> Postings:
    found = [part.postings(term) for part in parts]
    if len(found) == 1:
        return found[0]
    shifts = np.cumsum([0, *(len(part.lengths) for part in parts[:-1])]).astype(np.int32)
    rows = [each.rows + shift for each, shift in zip(found, shifts, strict=True)]
    return Postings(np.concatenate(rows), np.concatenate([each.counts for each in found]))


def _smoothed(scores: Scores, columns: Columns, weights: Sequence[float]) -> Scores:
    """Each row's score and a share of its neighbours'. Row ``NONE`` is the last of a padded array, and zero."""
    padded = np.append(scores, np.float32(0.0))
    total = scores.copy()
    for step in (columns.before, columns.after):
        near = step
        for weight in weights:
            total += np.float32(weight) * padded[near]
            near = np.append(step, np.int32(NONE))[near]
    return total


def _spread(scores: Scores, allowed: Mask) -> Scores:
    """From the worst allowed row to the best; when all are equal, they keep their score."""
    found = scores[allowed]
    if not len(found):
        return np.zeros_like(scores)
    low, high = found.min(), found.max()
    spread = (scores - low) / (high - low) if high > low else scores
    return np.where(allowed, np.clip(spread, 0.0, 1.0), np.float32(0.0)).astype(np.float32)


def _share_of_best(scores: Scores, allowed: Mask) -> Scores:
    """Zero stays zero, since no word in common says so much."""
    best = float(scores.max(where=allowed, initial=0.0))
    return np.where(allowed, scores / np.float32(best), np.float32(0.0)) if best > 0 else np.zeros_like(scores)
