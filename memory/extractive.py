"""Extractive summaries: the sentences that matter for a query, in their order, within a token limit."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from memory.ports import TokenCounter

# A full stop inside "3.5" or "example.com" ends nothing.
_SENTENCE_END = re.compile(r"(?<=[.!?…])\s+|(?<=[。！？])|\n+")
_WORD = re.compile(r"\w+")
_COMMON = frozenset(
    "the and was were are for with what who whom when where which why how did does has have had that this".split()  # noqa: SIM905
)
_STEM_LENGTH = 5  # letters compared, so that "paint" finds "painted"
_POSITION_WEIGHT = 0.5  # less than one query term: position only decides between equals
_MAX_SENTENCES = 2_000  # that are weighed, each at one call of the counter


def summarise(text: str, *, query: str, max_tokens: int, count: Callable[[str], int]) -> str:
    """At most ``max_tokens`` tokens of ``text``: whole sentences where one fits, else the first words; may be ''."""
    if max_tokens <= 0:
        return ""
    sentences = _sentences(text)
    ranked = _ranked(sentences, _terms(query))
    chosen = _choose(sentences, ranked, max_tokens, count)
    # Tokens of parts need not add up, so the whole is counted, and the least useful sentence goes until it fits.
    while chosen and count(_joined(sentences, chosen)) > max_tokens:
        chosen.pop()
    return _joined(sentences, chosen) or _first_words(text, max_tokens, count)


def _sentences(text: str) -> list[str]:
    found = (" ".join(part.split()) for part in _SENTENCE_END.split(text))
    return [sentence for sentence in found if sentence][:_MAX_SENTENCES]


def _terms(text: str) -> set[str]:
    """Stems of the words that tell one sentence from another."""
    words = set(_WORD.findall(text.casefold())) - _COMMON
    return {word[:_STEM_LENGTH] for word in words if len(word) > 2 or word.isdigit()}


def _ranked(sentences: Sequence[str], wanted: set[str]) -> list[int]:
    """Indexes by shared query terms, then by nearness to the beginning."""

    def score(index: int) -> float:
        return len(wanted & _terms(sentences[index])) + _POSITION_WEIGHT * (1 - index / len(sentences))

    return sorted(range(len(sentences)), key=score, reverse=True)


def _choose(sentences: Sequence[str], ranked: Sequence[int], limit: int, count: Callable[[str], int]) -> list[int]:
    """The best sentences that fit beside the better ones, best first."""
    chosen: list[int] = []
    for index in ranked:
        cost = count(sentences[index])
        if cost <= limit:
            chosen.append(index)
            limit -= cost
    return chosen


def _joined(sentences: Sequence[str], chosen: Sequence[int]) -> str:
    return " ".join(sentences[index] for index in sorted(chosen))


def _first_words(text: str, max_tokens: int, count: Callable[[str], int]) -> str:
    """A run of leading words that fits, by bisection; the longest one where more words never cost less."""
    words = text.split()
    low, high = 0, len(words)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if count(" ".join(words[:middle])) <= max_tokens else (low, middle - 1)
    return " ".join(words[:low])


class ExtractiveSummarizer:
    """The Summarizer port without a model."""

    origin = "rules"

    def __init__(self, counter: TokenCounter) -> None:
        self._counter = counter

    async def summarize(self, text: str, *, query: str, max_tokens: int) -> str:
        return summarise(text, query=query, max_tokens=max_tokens, count=self._counter.count)
