"""Ranking: the five-factor priority score, and duplicates.

Specification, "Memory Retriever with Priority Scoring": relevance 0.35, recency 0.20 with a half-life of a week,
importance 0.20 boosted by positive outcomes, frequency 0.10, type bonus 0.15.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from datetime import datetime

import numpy as np

from memory.decay import frequency, recency
from memory.errors import InvalidInput
from memory.ports import Vectors
from memory.records import Memory, Outcome, Tier

TYPE_BONUS: Mapping[Tier, float] = {
    Tier.WORKING: 0.3,
    Tier.PROCEDURAL: 0.2,
    Tier.EPISODIC: 0.0,
    Tier.SEMANTIC: 0.0,
}
SUCCESS_BOOST = 1.25  # importance of a memory whose outcome was a success
DUPLICATE_SIMILARITY = 0.97  # cosine; above it a fact and its source, or two facts, say the same


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
    factors = {
        "relevance": min(1.0, max(0.0, relevance)),
        "recency": recency(memory.created_at, now, half_life_days=weights.half_life_days),
        "importance": _boosted(memory),
        "frequency": frequency(memory.access_count),
        "type_bonus": TYPE_BONUS[memory.tier],
    }
    weight = asdict(weights)
    return ScoreParts(**factors, total=sum(weight[name] * value for name, value in factors.items()))


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
    kept = _distinct((pair[0] for pair in scored), limit, duplicate_similarity)
    parts = {id(candidate): found for candidate, found in scored}
    return [Hit(memory=candidate.memory, parts=parts[id(candidate)]) for candidate in kept]


def _order(pair: tuple[Candidate, ScoreParts]) -> tuple[float, float, str]:
    """By score; equal ones newest first, then by id, so that the order never depends on the input's."""
    candidate, parts = pair
    return (-parts.total, -candidate.memory.created_at.timestamp(), str(candidate.memory.id))


def _distinct(ordered: Iterable[Candidate], limit: int, similarity: float) -> list[Candidate]:
    """Walk down the ranking and keep what says something new."""
    kept: list[Candidate] = []
    seen: set[object] = set()
    for candidate in ordered:
        identity = _identity(candidate)
        if candidate.memory.id in seen or identity in seen or _said_already(candidate, kept, similarity):
            continue
        seen |= {candidate.memory.id, identity}
        kept.append(candidate)
        if len(kept) == limit:
            break
    return kept


def _identity(candidate: Candidate) -> tuple[str, ...]:
    """Two speakers who say the same words said two things."""
    return (candidate.content_hash, candidate.memory.speaker or "", candidate.memory.user_id or "")


def _said_already(candidate: Candidate, kept: Sequence[Candidate], similarity: float) -> bool:
    """Whether a better-scored memory says the same; episodes are events, and two of them never say the same."""
    if candidate.vector is None:
        return False
    rivals = [other.vector for other in kept if other.vector is not None and _comparable(candidate, other)]
    return bool(rivals) and bool(np.max(np.stack(rivals) @ candidate.vector) >= similarity)


def _comparable(one: Candidate, other: Candidate) -> bool:
    events = {Tier.EPISODIC, Tier.WORKING}
    return not (one.memory.tier in events and other.memory.tier in events)
