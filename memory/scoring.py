"""Ranking: the five-factor priority score, and duplicates.

Specification, "Memory Retriever with Priority Scoring": relevance 0.35, recency 0.20 with a half-life of a week,
importance 0.20 boosted by positive outcomes, frequency 0.10, type bonus 0.15.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime

import numpy as np
from numpy.typing import NDArray

from memory.decay import frequency, recency
from memory.errors import InvalidInput
from memory.ports import Vectors
from memory.records import Memory, Outcome, Tier

Codes = NDArray[np.int32]

TYPE_BONUS: Mapping[Tier, float] = {
    Tier.WORKING: 0.3,
    Tier.PROCEDURAL: 0.2,
    Tier.EPISODIC: 0.0,
    Tier.SEMANTIC: 0.0,
}
SUCCESS_BOOST = 1.25  # importance of a memory whose outcome was a success
DUPLICATE_SIMILARITY = 0.97  # cosine; above it a fact and its source, or two facts, say the same

_BLOCK = 128  # candidates compared in one matrix product
_EVENTS = frozenset({Tier.WORKING, Tier.EPISODIC})


@dataclass(frozen=True, kw_only=True)
class ScoringWeights:
    """Weights of the five factors, and the half-life of recency."""

    relevance: float = 0.35
    recency: float = 0.20
    importance: float = 0.20
    frequency: float = 0.10
    type_bonus: float = 0.15
    half_life_days: float = 7.0

    def merged(self, overrides: Mapping[str, float]) -> ScoringWeights:
        """These weights with some replaced. Raises ``InvalidInput`` naming what is wrong and the choices."""
        known = {field.name for field in fields(self)}
        if unknown := sorted(set(overrides) - known):
            raise InvalidInput(f"unknown weights {', '.join(unknown)}; choose from {', '.join(sorted(known))}")
        for name, value in overrides.items():
            if not math.isfinite(value) or value < 0 or (name == "half_life_days" and value == 0):
                raise InvalidInput(f"weight {name} must be a finite number not below 0 (half_life_days: above 0)")
        return replace(self, **overrides)


@dataclass(frozen=True, kw_only=True, slots=True)
class ScoreParts:
    """The five factors, each in [0, 1] before its weight, and the weighted sum."""

    relevance: float
    recency: float
    importance: float
    frequency: float
    type_bonus: float
    total: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Candidate:
    """A memory that a store found."""

    memory: Memory
    relevance: float  # 0.0 - 1.0
    vector: Vectors | None  # of shape (dimension,), unit length
    content_hash: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Hit:
    """A memory in the ranking."""

    memory: Memory
    parts: ScoreParts


def score(memory: Memory, *, relevance: float, now: datetime, weights: ScoringWeights) -> ScoreParts:
    """The five factors of one memory and their weighted sum."""
    relevant = min(1.0, max(0.0, relevance))
    fresh = recency(memory.created_at, now, half_life_days=weights.half_life_days)
    important = _boosted(memory)
    often = frequency(memory.access_count)
    bonus = TYPE_BONUS[memory.tier]
    return ScoreParts(
        relevance=relevant,
        recency=fresh,
        importance=important,
        frequency=often,
        type_bonus=bonus,
        total=weights.relevance * relevant
        + weights.recency * fresh
        + weights.importance * important
        + weights.frequency * often
        + weights.type_bonus * bonus,
    )


def _boosted(memory: Memory) -> float:
    boost = SUCCESS_BOOST if memory.outcome is Outcome.SUCCESS else 1.0
    return min(1.0, max(0.0, memory.importance * boost))


def rank(
    candidates: Sequence[Candidate],
    *,
    weights: ScoringWeights,
    now: datetime,
    floor: float,
    limit: int,
    duplicate_similarity: float = DUPLICATE_SIMILARITY,
) -> list[Hit]:
    """The best ``limit`` candidates at or above the similarity floor, each memory and each statement once."""
    scored = [
        (candidate, score(candidate.memory, relevance=candidate.relevance, now=now, weights=weights))
        for candidate in candidates
        if candidate.relevance >= floor
    ]
    scored.sort(key=_order)
    kept = _distinct([candidate for candidate, _ in scored], limit, duplicate_similarity)
    return [Hit(memory=scored[index][0].memory, parts=scored[index][1]) for index in kept]


def _order(pair: tuple[Candidate, ScoreParts]) -> tuple[float, float, int]:
    """By score; equal ones newest first, then by id, so that the order never depends on the input's."""
    candidate, parts = pair
    return (-parts.total, -candidate.memory.created_at.timestamp(), candidate.memory.id.int)


def _distinct(ordered: Sequence[Candidate], limit: int, similarity: float) -> list[int]:
    """Walk down the ranking and keep the positions of what says something new, ``limit`` at most.

    A block at a time is compared with what was kept, in one matrix product: 1,000 candidates take milliseconds.
    """
    kept: list[int] = []
    if not ordered or limit <= 0:
        return kept
    table = _Table.of(ordered)
    for start in range(0, len(ordered), _BLOCK):
        kept += _new_ones(table, kept, range(start, min(start + _BLOCK, len(ordered))), similarity)
        if len(kept) >= limit:
            break
    return kept[:limit]


def _new_ones(table: _Table, kept: Sequence[int], block: range, similarity: float) -> list[int]:
    """The positions of ``block`` that repeat neither ``kept`` nor a better one of the block."""
    same = table.same(np.array(block, dtype=np.int32), np.array([*kept, *block], dtype=np.int32), similarity)
    chosen = np.zeros(same.shape[1], dtype=np.bool_)
    chosen[: len(kept)] = True
    for row in range(len(block)):
        chosen[len(kept) + row] = not np.any(same[row] & chosen)
    return [position for row, position in enumerate(block) if chosen[len(kept) + row]]


@dataclass(frozen=True, kw_only=True, slots=True)
class _Table:
    """What decides on duplicates, one row a candidate; equal codes stand for equal values, 0 for none."""

    vectors: Vectors  # (rows, dimension); zeros where there is none
    known: NDArray[np.bool_]  # whether the row has a vector
    event: NDArray[np.bool_]  # something that happened, in contrast to a statement
    memory: Codes
    words: Codes
    speaker: Codes
    user: Codes

    @classmethod
    def of(cls, candidates: Sequence[Candidate]) -> _Table:
        memories = [candidate.memory for candidate in candidates]
        known = [candidate.vector is not None for candidate in candidates]
        return cls(
            vectors=_matrix([candidate.vector for candidate in candidates]),
            known=np.array(known, dtype=np.bool_),
            event=np.array([memory.tier in _EVENTS for memory in memories], dtype=np.bool_),
            memory=_codes(memory.id for memory in memories),
            words=_codes(candidate.content_hash for candidate in candidates),
            speaker=_codes(memory.speaker for memory in memories),
            user=_codes(memory.user_id for memory in memories),
        )

    def same(self, rows: Codes, columns: Codes, similarity: float) -> NDArray[np.bool_]:
        """Which rows say the same as which columns.

        Two events do so only when the same speaker used the same words; a statement repeats whatever has its words
        or its meaning. What belongs to two different users is never the same.
        """
        words = _equal(self.words, rows, columns)
        events = self.event[rows][:, None] & self.event[columns]
        repeated = words & _equal(self.speaker, rows, columns)
        said = np.where(events, repeated, words | self._similar(rows, columns, similarity))
        return (said & self._one_user(rows, columns)) | _equal(self.memory, rows, columns)

    def _similar(self, rows: Codes, columns: Codes, similarity: float) -> NDArray[np.bool_]:
        close = self.vectors[rows] @ self.vectors[columns].T >= similarity
        return np.asarray(close & self.known[rows][:, None] & self.known[columns], dtype=np.bool_)

    def _one_user(self, rows: Codes, columns: Codes) -> NDArray[np.bool_]:
        anyone = (self.user[rows] == 0)[:, None] | (self.user[columns] == 0)
        return np.asarray(anyone | _equal(self.user, rows, columns), dtype=np.bool_)


def _matrix(vectors: Sequence[Vectors | None]) -> Vectors:
    dimension = next((len(vector) for vector in vectors if vector is not None), 0)
    nothing = np.zeros(dimension, dtype=np.float32)
    return np.stack([nothing if vector is None else vector for vector in vectors])


def _codes(values: Iterable[Hashable | None]) -> Codes:
    """Numbers for values in order of appearance, from 1; 0 for ``None``."""
    numbers: dict[Hashable | None, int] = {None: 0}
    return np.array([numbers.setdefault(value, len(numbers)) for value in values], dtype=np.int32)


def _equal(codes: Codes, rows: Codes, columns: Codes) -> NDArray[np.bool_]:
    return np.asarray(codes[rows][:, None] == codes[columns], dtype=np.bool_)
