"""The five-factor priority score.

Specification, "Memory Retriever with Priority Scoring": relevance 0.35, recency 0.20 with a half-life of a week,
importance 0.20 boosted by positive outcomes, frequency 0.10, type bonus 0.15.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from datetime import datetime

from memory.decay import frequency, recency
from memory.errors import InvalidInput
from memory.records import Memory, Outcome, Tier

TYPE_BONUS: Mapping[Tier, float] = {
    Tier.WORKING: 0.3,
    Tier.PROCEDURAL: 0.2,
    Tier.EPISODIC: 0.0,
    Tier.SEMANTIC: 0.0,
}
SUCCESS_BOOST = 1.25  # importance of a memory whose outcome was a success


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
class Hit:
    """A memory in the ranking."""

    memory: Memory
    parts: ScoreParts


def score(memory: Memory, *, relevance: float, now: datetime, weights: ScoringWeights) -> ScoreParts:
    """The five factors of one memory and their weighted sum."""
    relevant = min(1.0, max(0.0, relevance))
    fresh = recency(memory.created_at, now, half_life_days=weights.half_life_days)
    important = boosted(memory.importance, memory.outcome)
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


def boosted(importance: float, outcome: Outcome | None) -> float:
    """Importance in [0, 1], raised by a success."""
    boost = SUCCESS_BOOST if outcome is Outcome.SUCCESS else 1.0
    return min(1.0, max(0.0, importance * boost))
