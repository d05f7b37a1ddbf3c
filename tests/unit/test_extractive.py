"""Extractive summaries: what is picked, in which order, and never above the limit."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memory.extractive import ExtractiveSummarizer, summarise

TEXT = "Ann moved to Oslo in 2021. The weather was fine. She paints portraits. Her dog is called Max."


def words(text: str) -> int:
    return len(text.split())


def odd_tokens(text: str) -> int:
    """A counter whose parts do not add up, as a real tokenizer's do not."""
    return len(text) // 3 + text.count(" ") * 2 + (5 if len(text) > 40 else 0)


@pytest.mark.parametrize(
    ("query", "limit", "summary"),
    [
        ("Where did Ann move, Oslo?", 6, "Ann moved to Oslo in 2021."),
        ("painting portraits", 3, "She paints portraits."),
        ("Her dog paints?", 9, "She paints portraits. Her dog is called Max."),
        ("", 6, "Ann moved to Oslo in 2021."),
        ("", 100, TEXT),
        ("dog", 2, "Ann moved"),
        ("dog", 0, ""),
        ("dog", -1, ""),
    ],
)
def test_sentences_of_the_query_come_first_and_in_order(query: str, limit: int, summary: str) -> None:
    assert summarise(TEXT, query=query, max_tokens=limit, count=words) == summary


def test_a_number_does_not_end_a_sentence() -> None:
    assert summarise("It costs 3.50 today. No.", query="costs", max_tokens=4, count=words) == "It costs 3.50 today."


def test_sentences_of_other_scripts_are_told_apart() -> None:
    assert summarise("我住在北京。我喜欢茶。", query="", max_tokens=6, count=len) == "我住在北京。"


def test_nothing_that_fits_is_an_empty_summary() -> None:
    assert summarise("unbreakable", query="x", max_tokens=3, count=len) == ""
    assert summarise(" \n ", query="x", max_tokens=3, count=words) == ""


@given(
    text=st.text(max_size=300) | st.lists(st.sampled_from(["a", "bb. ", "c!\n", " ", "。", "dog"])).map("".join),
    query=st.text(max_size=30),
    limit=st.integers(-2, 60),
    count=st.sampled_from([len, words, odd_tokens]),
)
@settings(max_examples=300, deadline=None)  # fmt: skip
def test_the_limit_holds_for_any_counter(text: str, query: str, limit: int, count: object) -> None:
    assert callable(count)
    summary = summarise(text, query=query, max_tokens=limit, count=count)
    assert summary == "" or count(summary) <= limit
    assert set(summary) <= set(text) | {" "}


@pytest.mark.parametrize("piece", ["a ", "a. ", ".", "\n", "。", " "])
def test_long_texts_are_quick(piece: str) -> None:
    started = time.process_time()
    summarise((piece * 64_000)[:64_000], query="a", max_tokens=100, count=words)
    assert time.process_time() - started < 2.0


class _Words:
    def count(self, text: str) -> int:
        return words(text)

    def truncate(self, text: str, max_tokens: int) -> str:
        return " ".join(text.split()[:max_tokens])


async def test_the_summarizer_port_uses_its_counter() -> None:
    summary = await ExtractiveSummarizer(_Words()).summarize(TEXT, query="dog", max_tokens=5)
    assert summary == "Her dog is called Max."
