"""Extractive summaries: the sentences that matter for a query, in their order, within a token limit."""

from __future__ import annotations

import re
from collections.abc import Callable

from memory.ports import TokenCounter

_SENTENCE = re.compile(r"[^.!?。！？\n]+[.!?。！？]*")
_WORD = re.compile(r"\w+")


def summarise(text: str, *, query: str, max_tokens: int, count: Callable[[str], int]) -> str:
    """At most ``max_tokens`` tokens of ``text``: whole sentences where one fits, else the first words; may be ''."""
    wanted = set(_WORD.findall(query.casefold()))
    sentences = [found.strip() for found in _SENTENCE.findall(text) if found.strip()]
    ranked = sorted(range(len(sentences)), key=lambda i: (-_overlap(sentences[i], wanted), i))
    chosen = _choose(sentences, ranked, max_tokens, count)
    summary = " ".join(sentences[i] for i in sorted(chosen))
    if summary and count(summary) <= max_tokens:
        return summary
    return _first_words(text, max_tokens, count)


def _overlap(sentence: str, wanted: set[str]) -> int:
    return len(wanted & set(_WORD.findall(sentence.casefold())))


def _choose(sentences: list[str], ranked: list[int], max_tokens: int, count: Callable[[str], int]) -> list[int]:
    chosen: list[int] = []
    left = max_tokens
    for index in ranked:
        cost = count(sentences[index]) + 1  # the space between two sentences may cost a token
        if cost <= left:
            chosen.append(index)
            left -= cost
    return chosen


def _first_words(text: str, max_tokens: int, count: Callable[[str], int]) -> str:
    """The longest run of leading words that fits, by bisection."""
    words = text.split()
    low, high = 0, len(words)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if count(" ".join(words[:middle])) <= max_tokens else (low, middle - 1)
    return " ".join(words[:low])


class ExtractiveSummarizer:
    """The Summarizer port without a model."""

    def __init__(self, counter: TokenCounter) -> None:
        self._counter = counter

    async def summarize(self, text: str, *, query: str, max_tokens: int) -> str:
        return summarise(text, query=query, max_tokens=max_tokens, count=self._counter.count)
