"""Decay and frequency, shared by ranking and retention."""

from __future__ import annotations

import math
from datetime import datetime

FREQUENT = 49  # accesses from which a memory counts as frequent (specification, ``retention_score``)


def recency(moment: datetime, now: datetime, *, half_life_days: float) -> float:
    """Half of what it was every ``half_life_days``; 1.0 for now and for the future."""
    age_days = max(0.0, (now - moment).total_seconds() / 86_400.0)
    return float(2.0 ** (-age_days / half_life_days))


def frequency(access_count: int) -> float:
    """Logarithmic in the number of accesses, 1.0 from ``FREQUENT`` on."""
    return min(1.0, math.log1p(access_count) / math.log1p(FREQUENT))
