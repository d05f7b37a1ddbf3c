"""Relevance: what a query and a memory have in common, by meaning and by words.

Dense and lexical scores live on different scales, so each is brought to [0, 1] over the candidates before they are
added. Score fusion beat reciprocal rank fusion on conversations (recall@10 0.65 against 0.60 on LoCoMo).
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from memory.phrasing import context_text
from memory.scoring import Candidate

Scores = NDArray[np.float64]
Stem = Callable[[str], str]

K1, B = 1.2, 0.75  # Lucene's defaults for BM25
DENSE_SHARE = 0.5
_WORD = re.compile(r"\w+(?:[-.']\w+)*")
_STOP_WORDS = """
a an and are as at be been but by did do does for from had has have he her him his how i in is it its me my of on or our
she so that the their them they this to was we were what when where which who whom whose why will with would you your
"""
#: Words that say nothing about what a sentence is about; they would only add noise to short queries.
STOP_WORDS = frozenset(_STOP_WORDS.split())


def terms(text: str, stem: Stem) -> list[str]:
    """Stemmed words, in order; identifiers with dots, dashes and apostrophes stay whole."""
    return [stem(word) for word in _WORD.findall(text.casefold()) if word not in STOP_WORDS]


def bm25(query: Sequence[str], documents: Sequence[Sequence[str]]) -> Scores:
    """BM25 (Lucene's variant: Kamphuis et al. 2020) of each document of term lists, not normalised."""
    counts = [Counter(document) for document in documents]
    average = sum(map(len, documents)) / len(documents) if documents else 0.0
    weights = {term: _idf(sum(term in count for count in counts), len(documents)) for term in set(query)}
    return np.array([_score(weights, count, average) for count in counts], dtype=np.float64)


def _idf(containing: int, documents: int) -> float:
    return math.log(1 + (documents - containing + 0.5) / (containing + 0.5))


def _score(weights: Mapping[str, float], count: Counter[str], average: float) -> float:
    norm = K1 * (1 - B + B * count.total() / average) if average else K1
    return sum(weight * count[term] / (count[term] + norm) for term, weight in weights.items() if count[term])


def fuse(
    query: str, candidates: Sequence[Candidate], stem: Stem, *, dense_share: float = DENSE_SHARE
) -> list[Candidate]:
    """The candidates with their relevance, until now the cosine, replaced by the fused one."""
    if not candidates:
        return []
    dense = np.array([candidate.relevance for candidate in candidates])
    lexical = bm25(terms(query, stem), [terms(context_text(c.memory), stem) for c in candidates])
    fused = dense_share * _spread(dense) + (1 - dense_share) * _by_best(lexical)
    return [replace(candidate, relevance=float(value)) for candidate, value in zip(candidates, fused, strict=True)]


def _spread(scores: Scores) -> Scores:
    """From the worst candidate to the best; a single candidate keeps its own score."""
    low, high = float(scores.min()), float(scores.max())
    return (scores - low) / (high - low) if high > low else scores


def _by_best(scores: Scores) -> Scores:
    """As a share of the best; zero stays zero, since no word in common says so much."""
    best = float(scores.max())
    return scores / best if best > 0 else scores
