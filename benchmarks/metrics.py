"""Retrieval metrics, for one question each: ranked ids against the relevant set."""

from __future__ import annotations

import math
from collections.abc import Sequence, Set


def recall_at(k: int, ranked: Sequence[str], relevant: Set[str]) -> float:
    """Share of the relevant ids among the first ``k``."""
    return len(set(ranked[:k]) & relevant) / len(relevant)


def ndcg_at(k: int, ranked: Sequence[str], relevant: Set[str]) -> float:
    """Discounted gain of the first ``k`` over the best possible one, with binary relevance."""
    gain = sum(1 / math.log2(place + 2) for place, found in enumerate(ranked[:k]) if found in relevant)
    best = sum(1 / math.log2(place + 2) for place in range(min(k, len(relevant))))
    return gain / best


def reciprocal_rank(ranked: Sequence[str], relevant: Set[str]) -> float:
    """One over the place of the first relevant id; 0 when there is none."""
    return next((1 / (place + 1) for place, found in enumerate(ranked) if found in relevant), 0.0)
