"""Forgetting: how much a memory is still worth keeping."""

from __future__ import annotations

from datetime import datetime

from memory.decay import frequency, recency
from memory.records import Memory

FORGET_BELOW = 0.15  # specification, "Forgetting / decay policy"


def retention_score(memory: Memory, now: datetime, *, half_life_days: float = 7.0) -> float:
    """0.5 importance + 0.35 recency of the last access + 0.15 frequency, in [0, 1] (specification)."""
    last = memory.last_accessed_at or memory.recorded_at
    fresh = recency(last, now, half_life_days=half_life_days)
    return 0.5 * memory.importance + 0.35 * fresh + 0.15 * frequency(memory.access_count)


def should_forget(memory: Memory, now: datetime, *, threshold: float = FORGET_BELOW) -> bool:
    """Whether the score has dropped below the threshold."""
    return retention_score(memory, now) < threshold
