"""Relevance: BM25 against its formula, and what fusing does to a ranking."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory.fusion import K1, B, bm25, fuse, terms
from memory.scoring import Candidate
from tests.builders import memory


def candidate(content: str, relevance: float) -> Candidate:
    return Candidate(memory=memory(content), relevance=relevance, vector=None, content_hash=content)


def test_bm25_is_lucenes_formula() -> None:
    documents = [["heron", "fish", "heron"], ["tea"], ["fish"]]
    first, second, third = bm25(["heron", "fish"], documents)
    average = 5 / 3
    norm = K1 * (1 - B + B * 3 / average)
    heron, fish = math.log(1 + 2.5 / 1.5), math.log(1 + 1.5 / 2.5)
    assert first == pytest.approx(heron * 2 / (2 + norm) + fish * 1 / (1 + norm))
    assert second == 0
    assert third > 0


def test_identifiers_stay_whole_and_stop_words_go() -> None:
    assert terms("What is the ERR-4021 of v2.3.1 by john_doe?", str) == ["err-4021", "v2.3.1", "john_doe"]


def test_words_in_common_beat_a_slightly_higher_cosine() -> None:
    found = fuse("error ERR-4021", [candidate("some error", 0.52), candidate("ERR-4021 was an error", 0.50)], str)
    assert found[1].relevance > 0.4
    found = fuse("ERR-4021", [candidate("a", 0.52), candidate("ERR-4021", 0.50), candidate("b", 0.1)], str)
    assert max(found, key=lambda each: each.relevance).memory.content == "ERR-4021"


def test_without_words_in_common_the_cosine_decides() -> None:
    found = fuse("query", [candidate("a", 0.2), candidate("b", 0.6)], str)
    assert [each.relevance for each in found] == [0.0, 0.5]


def test_nothing_found_is_nothing_fused() -> None:
    assert fuse("query", [], str) == []


@given(
    query=st.text(max_size=30),
    found=st.lists(st.tuples(st.text(min_size=1, max_size=30), st.floats(0, 1)), min_size=1, max_size=20),
)
def test_relevance_stays_between_zero_and_one(query: str, found: list[tuple[str, float]]) -> None:
    fused = fuse(query, [candidate(content, relevance) for content, relevance in found], str)
    assert all(0.0 <= each.relevance <= 1.0 + 1e-9 for each in fused)
