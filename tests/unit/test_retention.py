from __future__ import annotations

import math
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory.retention import FORGET_BELOW, retention_score, should_forget
from tests.builders import NOW, memory

days = st.floats(0, 5000)
counts = st.integers(0, 10**9)
unit = st.floats(0, 1)

ANCIENT = NOW - timedelta(days=100_000)


def specification(importance: float, age_days: float, access_count: int, half_life_days: float = 7.0) -> float:
    """``retention_score`` as the specification prints it."""
    recency = math.exp(-math.log(2.0) * age_days / half_life_days)
    frequency = min(1.0, math.log1p(access_count) / math.log(50.0))
    return 0.5 * importance + 0.35 * recency + 0.15 * frequency


@given(unit, days, counts, st.floats(0.1, 365))
def test_it_is_the_formula_of_the_specification(importance: float, age: float, count: int, half_life: float) -> None:
    record = memory(importance=importance, last_accessed_at=NOW - timedelta(days=age), access_count=count)
    found = retention_score(record, NOW, half_life_days=half_life)
    assert found == pytest.approx(specification(importance, age, count, half_life), abs=1e-6)
    assert 0.0 <= found <= 1.0 + 1e-9


def test_examples() -> None:
    fresh = memory(importance=0.4, access_count=0)
    assert retention_score(fresh, NOW) == pytest.approx(0.2 + 0.35)
    assert retention_score(fresh, NOW + timedelta(days=7)) == pytest.approx(0.2 + 0.175)
    assert retention_score(memory(importance=1.0, access_count=49), NOW) == pytest.approx(1.0)


def test_a_memory_never_read_ages_from_its_recording_not_from_the_event() -> None:
    imported = memory(created_at=NOW - timedelta(days=900), recorded_at=NOW, importance=0.0)
    assert retention_score(imported, NOW) == pytest.approx(0.35)


def test_the_last_access_counts_not_the_recording() -> None:
    old = memory(recorded_at=NOW - timedelta(days=900), last_accessed_at=NOW, importance=0.0)
    assert retention_score(old, NOW) == pytest.approx(0.35)


def test_an_access_in_the_future_counts_as_now() -> None:
    ahead = memory(last_accessed_at=NOW + timedelta(days=3), importance=0.0)
    assert retention_score(ahead, NOW) == pytest.approx(0.35)


@given(unit, counts, days, days)
def test_the_score_only_falls_while_nobody_reads(importance: float, count: int, first: float, second: float) -> None:
    sooner, later = sorted((first, second))
    record = memory(importance=importance, access_count=count)
    scores = [retention_score(record, NOW + timedelta(days=age)) for age in (sooner, later)]
    assert scores[0] >= scores[1]


def test_the_threshold_itself_is_kept() -> None:
    assert FORGET_BELOW == 0.15
    assert not should_forget(memory(importance=0.30, recorded_at=ANCIENT), NOW)
    assert should_forget(memory(importance=0.2999, recorded_at=ANCIENT), NOW)
    assert not should_forget(memory(importance=0.2999, recorded_at=ANCIENT), NOW, threshold=0.1)


def test_important_or_often_used_memories_are_never_forgotten() -> None:
    assert not should_forget(memory(importance=0.9, recorded_at=ANCIENT), NOW)
    assert not should_forget(memory(importance=0.0, access_count=60, recorded_at=ANCIENT), NOW)
