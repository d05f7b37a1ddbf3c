from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory.errors import InvalidInput
from memory.records import Memory, Outcome, Tier
from memory.scoring import ScoringWeights, score
from tests.builders import NOW, memory

WEIGHTS = ScoringWeights()


def parts(record: Memory, relevance: float = 0.0, weights: ScoringWeights = WEIGHTS) -> Any:
    return score(record, relevance=relevance, now=NOW, weights=weights)


# Weights


def test_the_defaults_are_those_of_the_specification() -> None:
    named = WEIGHTS.relevance, WEIGHTS.recency, WEIGHTS.importance, WEIGHTS.frequency, WEIGHTS.type_bonus
    assert named == (0.35, 0.20, 0.20, 0.10, 0.15)
    assert WEIGHTS.half_life_days == 7.0


def test_overrides_replace_only_what_they_name() -> None:
    assert WEIGHTS.merged({"relevance": 0.9, "half_life_days": 30}) == replace(
        WEIGHTS, relevance=0.9, half_life_days=30
    )
    assert WEIGHTS.merged({}) == WEIGHTS


def test_an_unknown_weight_is_named_and_so_are_the_choices() -> None:
    with pytest.raises(InvalidInput, match=r"novelty.*frequency.*half_life_days.*importance.*recency.*relevance.*type"):
        WEIGHTS.merged({"novelty": 1.0})


@pytest.mark.parametrize("value", [-0.1, float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("name", ["relevance", "type_bonus", "half_life_days"])
def test_impossible_weights_are_refused_by_name(name: str, value: float) -> None:
    with pytest.raises(InvalidInput, match=name):
        WEIGHTS.merged({name: value})


def test_a_weight_may_be_zero_but_not_the_half_life() -> None:
    assert WEIGHTS.merged({"recency": 0.0}).recency == 0.0
    with pytest.raises(InvalidInput, match="half_life_days"):
        WEIGHTS.merged({"half_life_days": 0.0})


# Score


def test_recency_halves_every_half_life() -> None:
    ages = {age: parts(memory(created_at=NOW - timedelta(days=age))).recency for age in (-5, 0, 7, 14)}
    assert ages == pytest.approx({-5: 1.0, 0: 1.0, 7: 0.5, 14: 0.25})
    slow = WEIGHTS.merged({"half_life_days": 14})
    assert parts(memory(created_at=NOW - timedelta(days=14)), weights=slow).recency == pytest.approx(0.5)


def test_recency_counts_from_the_event_not_from_the_recording() -> None:
    imported = memory(created_at=NOW - timedelta(days=7), recorded_at=NOW, last_accessed_at=NOW)
    assert parts(imported).recency == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("outcome", "importance"),
    [(None, 0.4), (Outcome.SUCCESS, 0.5), (Outcome.FAILURE, 0.4), (Outcome.PARTIAL, 0.4), (Outcome.UNKNOWN, 0.4)],
)
def test_success_makes_a_memory_more_important(outcome: Outcome | None, importance: float) -> None:
    assert parts(memory(importance=0.4, outcome=outcome)).importance == pytest.approx(importance)


def test_importance_never_exceeds_one() -> None:
    assert parts(memory(importance=0.9, outcome=Outcome.SUCCESS)).importance == 1.0


def test_frequency_is_logarithmic_and_capped() -> None:
    found = {count: parts(memory(access_count=count)).frequency for count in (0, 6, 49, 10**6)}
    assert found == pytest.approx({0: 0.0, 6: 0.49742, 49: 1.0, 10**6: 1.0}, abs=1e-5)


def test_the_type_bonus() -> None:
    found = {tier: parts(memory(tier=tier)).type_bonus for tier in Tier}
    assert found == {Tier.WORKING: 0.3, Tier.PROCEDURAL: 0.2, Tier.EPISODIC: 0.0, Tier.SEMANTIC: 0.0}


def test_the_total_is_the_weighted_sum() -> None:
    record = memory(tier=Tier.PROCEDURAL, importance=0.5, access_count=49, created_at=NOW - timedelta(days=7))
    assert parts(record, 0.8).total == pytest.approx(0.35 * 0.8 + 0.2 * 0.5 + 0.2 * 0.5 + 0.1 * 1.0 + 0.15 * 0.2)
    only = ScoringWeights(relevance=0, recency=0, importance=0, frequency=0, type_bonus=2.0)
    assert parts(record, 0.8, only).total == pytest.approx(0.4)


@given(
    st.floats(-2, 2),
    st.floats(-1, 2),
    st.integers(0, 10**12),
    st.floats(-4000, 4000),
    st.sampled_from(Tier),
    st.sampled_from([None, *Outcome]),
)
def test_every_factor_and_the_default_total_lie_between_zero_and_one(
    relevance: float, importance: float, count: int, age: float, tier: Tier, outcome: Outcome | None
) -> None:
    created = NOW - timedelta(days=age)
    record = memory(tier=tier, importance=importance, access_count=count, created_at=created, outcome=outcome)
    found = parts(record, relevance)
    factors = [found.relevance, found.recency, found.importance, found.frequency, found.type_bonus, found.total]
    assert all(0.0 <= factor <= 1.0 + 1e-9 for factor in factors)
