"""Ranking: the vectorised factors against the scalar definition, and duplicates."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memory.columns import Columns, Entry, microseconds
from memory.normalise import content_hash
from memory.ports import Vectors
from memory.ranking import DUPLICATE_SIMILARITY, Factors, best
from memory.records import Memory, MemoryId, Outcome, Tier
from memory.scoring import Hit, ScoringWeights, score
from tests.builders import NOW, memory

WEIGHTS = ScoringWeights()


@dataclass(frozen=True)
class Candidate:
    memory: Memory
    relevance: float
    vector: Vectors | None
    content_hash: str


def vector(*values: float) -> Vectors:
    raw = np.array(values, dtype=np.float32)
    return np.asarray(raw / np.linalg.norm(raw), dtype=np.float32)


def near(similarity: float) -> Vectors:
    """A vector of that cosine to ``vector(1, 0)``."""
    return vector(similarity, (1 - similarity**2) ** 0.5)


def candidate(relevance: float = 0.5, words: str | None = None, at: Vectors | None = None, **changes: Any) -> Candidate:
    record = memory(**changes)
    return Candidate(memory=record, relevance=relevance, vector=at, content_hash=words or str(record.id))


def columns_of(found: Sequence[Candidate]) -> Columns:
    columns = Columns()
    columns.append([entry(one) for one in found], [-1] * len(found))
    return columns


def entry(found: Candidate) -> Entry:
    record = found.memory
    return Entry(
        id=record.id,
        tier=record.tier,
        text=record.content,
        words=content_hash(found.content_hash),
        created_at=record.created_at,
        importance=record.importance,
        outcome=record.outcome,
        access_count=record.access_count,
        speaker=record.speaker,
        user_id=record.user_id,
    )


def factors_of(columns: Columns, found: Sequence[Candidate]) -> Factors:
    relevance = np.array([one.relevance for one in found], dtype=np.float32)
    return Factors.of(columns, relevance, now_us=microseconds(NOW), half_life_days=WEIGHTS.half_life_days)


def ranked(
    found: Sequence[Candidate],
    *,
    floor: float = 0.0,
    limit: int = 1000,
    duplicate_similarity: float = DUPLICATE_SIMILARITY,
) -> list[Hit]:
    columns = columns_of(found)
    factors = factors_of(columns, found)
    totals = factors.total(WEIGHTS)
    size = next((len(one.vector) for one in found if one.vector is not None), 1)
    matrix = np.array([np.zeros(size) if one.vector is None else one.vector for one in found], dtype=np.float32)
    rows = best(
        totals,
        columns,
        np.array([one.relevance >= floor for one in found], dtype=np.bool_),
        limit=limit,
        vectors=lambda rows: matrix.reshape(-1, size)[rows],
        admitted=lambda near: np.ones(len(near), dtype=np.bool_),
        similarity=duplicate_similarity,
    )
    return [Hit(memory=found[row].memory, parts=factors.parts(row, float(totals[row]))) for row in rows]


def ids(hits: Sequence[Hit]) -> list[MemoryId]:
    return [hit.memory.id for hit in hits]


@given(
    st.floats(0, 1, width=32),
    st.floats(0, 1, width=32),
    st.integers(0, 10**6),
    st.integers(-(10**9), 10**9),
    st.sampled_from(Tier),
    st.sampled_from([None, *Outcome]),
)
def test_the_factors_are_those_of_the_scalar_definition(
    relevance: float, importance: float, count: int, age_s: int, tier: Tier, outcome: Outcome | None
) -> None:
    created = NOW - timedelta(seconds=age_s)
    one = candidate(
        relevance, tier=tier, importance=importance, access_count=count, created_at=created, outcome=outcome
    )
    factors = factors_of(columns_of([one]), [one])
    parts = factors.parts(0, float(factors.total(WEIGHTS)[0]))
    expected = score(one.memory, relevance=relevance, now=NOW, weights=WEIGHTS)
    for name in ("relevance", "recency", "importance", "frequency", "type_bonus", "total"):
        assert getattr(parts, name) == pytest.approx(getattr(expected, name), abs=1e-6)


def test_what_is_not_admitted_makes_room_for_what_is() -> None:
    found = [candidate(1 - i / 1000, at=vector(0, 1)) for i in range(300)] + [candidate(0.0, at=vector(1, 0))]
    columns = columns_of(found)
    matrix = np.array([one.vector for one in found])
    rows = best(
        factors_of(columns, found).total(WEIGHTS),
        columns,
        np.ones(len(found), dtype=np.bool_),
        limit=5,
        vectors=lambda rows: matrix[rows],
        admitted=lambda near: near[:, 0] > 0.5,
    )
    assert rows == [300]


def test_the_best_come_first() -> None:
    low, high, middle = candidate(0.2), candidate(0.9), candidate(0.5)
    hits = ranked([low, high, middle])
    assert ids(hits) == [high.memory.id, middle.memory.id, low.memory.id]
    assert hits[0].parts.total == pytest.approx(score(high.memory, relevance=0.9, now=NOW, weights=WEIGHTS).total)


def test_what_lies_below_the_floor_is_left_out_working_memory_too() -> None:
    at, below, session = candidate(0.3), candidate(0.2999), candidate(0.1, tier=Tier.WORKING)
    assert ids(ranked([at, below, session], floor=0.3)) == [at.memory.id]


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
    facts = [
        candidate(words="tea", at=vector(1, 0), tier=Tier.SEMANTIC, user_id=user) for user in ("ann", "bob", "Ann")
    ]
    assert len(ranked(facts)) == 3
    shared = candidate(1.0, words="tea", tier=Tier.SEMANTIC, user_id=None)
    assert ids(ranked([*facts, shared])) == [shared.memory.id]


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
    assert ids(ranked(shuffled)) == ids(ranked(found))


@settings(deadline=None)
@given(many, st.integers(0, 12), st.sampled_from([0.0, 0.3, 0.7]))
def test_it_is_the_plain_greedy_walk(found: list[Candidate], limit: int, floor: float) -> None:
    pairs = [
        (score(one.memory, relevance=one.relevance, now=NOW, weights=WEIGHTS).total, one)
        for one in found
        if one.relevance >= floor
    ]
    pairs.sort(key=lambda pair: (-round(pair[0], 6), -pair[1].memory.created_at.timestamp(), str(pair[1].memory.id)))
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
