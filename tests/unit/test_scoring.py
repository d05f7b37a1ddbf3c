from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memory.errors import InvalidInput
from memory.ports import Vectors
from memory.records import Memory, MemoryId, Outcome, Tier, UserId
from memory.scoring import Candidate, Hit, ScoringWeights, rank, score
from tests.builders import NOW, memory

WEIGHTS = ScoringWeights()


def vector(*values: float) -> Vectors:
    raw = np.array(values, dtype=np.float32)
    return np.asarray(raw / np.linalg.norm(raw), dtype=np.float32)


def near(similarity: float) -> Vectors:
    """A vector of that cosine to ``vector(1, 0)``."""
    return vector(similarity, (1 - similarity**2) ** 0.5)


def candidate(relevance: float = 0.5, words: str | None = None, at: Vectors | None = None, **changes: Any) -> Candidate:
    record = memory(**changes)
    return Candidate(memory=record, relevance=relevance, vector=at, content_hash=words or str(record.id))


def ranked(candidates: Sequence[Candidate], *, floor: float = 0.0, limit: int = 1000, **options: Any) -> list[Hit]:
    return rank(candidates, weights=WEIGHTS, now=NOW, floor=floor, limit=limit, **options)


def ids(hits: Sequence[Hit]) -> list[MemoryId]:
    return [hit.memory.id for hit in hits]


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


# Ranking


def test_the_best_come_first() -> None:
    low, high, middle = candidate(0.2), candidate(0.9), candidate(0.5)
    hits = ranked([low, high, middle])
    assert ids(hits) == [high.memory.id, middle.memory.id, low.memory.id]
    assert hits[0].parts == parts(high.memory, 0.9)


def test_what_lies_below_the_floor_is_left_out_working_memory_too() -> None:
    at, below, session = candidate(0.3), candidate(0.2999), candidate(0.1, tier=Tier.WORKING)
    assert ids(ranked([at, below, session], floor=0.3)) == [at.memory.id]


def test_a_relevance_that_is_no_number_is_left_out() -> None:
    assert ranked([candidate(float("nan"))], floor=0.0) == []


@pytest.mark.parametrize(("limit", "count"), [(-1, 0), (0, 0), (1, 1), (3, 3), (9, 5)])
def test_the_limit(limit: int, count: int) -> None:
    assert len(ranked([candidate() for _ in range(5)], limit=limit)) == count


def test_duplicates_do_not_use_up_the_limit() -> None:
    same = [candidate(0.9, words="same", tier=Tier.SEMANTIC) for _ in range(300)]
    other = candidate(0.1)
    assert other.memory.id in ids(ranked([*same, other], limit=2))


def test_equal_scores_go_newest_first_then_by_id() -> None:
    later = NOW + timedelta(days=1)  # both ages count as none
    first = candidate(id=uuid.UUID(int=9), created_at=later)
    second, third = candidate(id=uuid.UUID(int=1)), candidate(id=uuid.UUID(int=2))
    assert ids(ranked([third, second, first])) == [candidate.memory.id for candidate in (first, second, third)]


# Duplicates


def test_a_fact_and_its_source_in_the_same_words_are_one() -> None:
    episode = candidate(0.9, words="tea", speaker="Ann")
    fact = candidate(0.5, words="tea", tier=Tier.SEMANTIC)
    assert ids(ranked([fact, episode])) == [episode.memory.id]
    better = replace(fact, relevance=1.0)
    assert ids(ranked([better, replace(episode, relevance=0.2)])) == [better.memory.id]


@pytest.mark.parametrize("one", [Tier.SEMANTIC, Tier.PROCEDURAL])
@pytest.mark.parametrize("other", [Tier.SEMANTIC, Tier.EPISODIC, Tier.WORKING])
def test_a_statement_close_to_another_memory_is_a_duplicate(one: Tier, other: Tier) -> None:
    best = candidate(0.9, at=vector(1, 0), tier=one)
    assert ids(ranked([best, candidate(0.1, at=near(0.98), tier=other)])) == [best.memory.id]
    assert len(ranked([best, candidate(0.1, at=near(0.96), tier=other)])) == 2


def test_the_similarity_of_duplicates_can_be_set() -> None:
    pair = [candidate(at=at, tier=Tier.SEMANTIC) for at in (vector(1, 0), near(0.9))]
    assert len(ranked(pair)) == 2
    assert len(ranked(pair, duplicate_similarity=0.85)) == 1


@pytest.mark.parametrize("other", [Tier.EPISODIC, Tier.WORKING])
def test_two_events_alike_remain_two(other: Tier) -> None:
    assert len(ranked([candidate(at=vector(1, 0)), candidate(at=vector(1, 0), tier=other)])) == 2


def test_an_event_repeated_word_for_word_by_its_speaker_is_one() -> None:
    assert len(ranked([candidate(words="yes", speaker="Ann"), candidate(words="yes", speaker="Ann")])) == 1


def test_two_speakers_who_say_the_same_said_two_things() -> None:
    assert len(ranked([candidate(words="yes", speaker="Ann"), candidate(words="yes", speaker="Bob")])) == 2


def test_the_same_statement_about_two_users_is_two_facts() -> None:
    facts = [candidate(words="tea", at=vector(1, 0), tier=Tier.SEMANTIC, user_id=user) for user in ("ann", "bob")]
    assert len(ranked(facts)) == 2
    shared = candidate(1.0, words="tea", tier=Tier.SEMANTIC, user_id=None)
    assert ids(ranked([*facts, shared])) == [shared.memory.id]


def test_one_memory_found_twice_is_one() -> None:
    found = candidate(0.4, tier=Tier.EPISODIC, speaker="Ann")
    again = replace(
        found, relevance=0.8, memory=replace(found.memory, tier=Tier.WORKING, speaker="ann", user_id=UserId("x"))
    )
    hits = ranked([found, again])
    assert [hit.memory.tier for hit in hits] == [Tier.WORKING]


def test_memories_without_vectors_are_never_alike() -> None:
    tier = Tier.SEMANTIC
    mixed = [candidate(tier=tier), candidate(tier=tier), candidate(at=vector(1, 0), tier=tier)]
    assert len(ranked(mixed)) == 3
    assert len(ranked(mixed, duplicate_similarity=0.0)) == 3
    assert len(ranked(mixed[:2])) == 2


def test_only_what_was_kept_makes_a_duplicate() -> None:
    """b repeats a and leaves; c repeats only b and stays."""
    angles = [vector(1, 0), near(0.98), near(0.93)]
    chain = [candidate(0.9 - 0.1 * i, at=at, tier=Tier.SEMANTIC) for i, at in enumerate(angles)]
    assert float(angles[1] @ angles[2]) > 0.97
    assert ids(ranked(chain)) == [chain[0].memory.id, chain[2].memory.id]


@st.composite
def candidates(draw: st.DrawFn) -> Candidate:
    angle = draw(st.none() | st.floats(0, 3))
    return candidate(
        draw(st.sampled_from([0.1, 0.5, 0.9])),
        draw(st.sampled_from("abcdef")),
        None if angle is None else vector(np.cos(angle), np.sin(angle)),
        id=uuid.UUID(int=draw(st.integers(0, 2**64))),
        tier=draw(st.sampled_from(Tier)),
        user_id=draw(st.sampled_from([None, "ann", "bob"])),
        speaker=draw(st.sampled_from([None, "Ann"])),
        created_at=NOW - timedelta(days=draw(st.integers(0, 3))),
    )


many = st.lists(candidates(), max_size=30, unique_by=lambda found: found.memory.id)


def alike(one: Candidate, other: Candidate) -> bool:
    """The rule of duplicates, written plainly."""
    a, b = one.memory, other.memory
    if a.user_id and b.user_id and a.user_id != b.user_id:
        return False
    if {a.tier, b.tier} <= {Tier.EPISODIC, Tier.WORKING}:
        return one.content_hash == other.content_hash and a.speaker == b.speaker
    if one.content_hash == other.content_hash:
        return True
    return one.vector is not None and other.vector is not None and float(one.vector @ other.vector) >= 0.97


@settings(deadline=None)
@given(many, st.randoms(use_true_random=False))
def test_the_order_of_the_candidates_is_irrelevant(found: list[Candidate], random: Random) -> None:
    shuffled = list(found)
    random.shuffle(shuffled)
    assert ranked(shuffled) == ranked(found)


@settings(deadline=None)
@given(many, st.integers(0, 12), st.sampled_from([0.0, 0.3, 0.7]))
def test_it_is_the_plain_greedy_walk(found: list[Candidate], limit: int, floor: float) -> None:
    pairs = [(parts(one.memory, one.relevance).total, one) for one in found if one.relevance >= floor]
    pairs.sort(key=lambda pair: (-pair[0], -pair[1].memory.created_at.timestamp(), str(pair[1].memory.id)))
    kept: list[Candidate] = []
    for _, one in pairs:
        if not any(alike(one, other) for other in kept):
            kept.append(one)
    assert ids(ranked(found, limit=limit, floor=floor)) == [one.memory.id for one in kept[:limit]]


def thousand() -> list[Candidate]:
    vectors = np.random.default_rng(0).normal(size=(1000, 384)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    tiers = list(Tier)
    return [candidate(i / 1000, at=row, tier=tiers[i % 4], id=uuid.UUID(int=i)) for i, row in enumerate(vectors)]


def test_duplicates_are_found_across_hundreds_of_ranks() -> None:
    found = thousand()
    twin = candidate(0.0, at=found[998].vector, tier=Tier.PROCEDURAL, created_at=NOW - timedelta(days=90))
    assert len(ranked(found)) == 1000
    assert twin.memory.id not in ids(ranked([twin, *found], limit=2000))
