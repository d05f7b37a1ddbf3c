"""English stemming by Snowball's C library."""

from __future__ import annotations

from functools import lru_cache

import Stemmer


class EnglishStemmer:
    """Callable: a case-folded word to its stem. Remembers the words that it has seen last."""

    def __init__(self, cache_size: int = 65_536) -> None:
        self._stem = lru_cache(cache_size)(Stemmer.Stemmer("english").stemWord)

    def __call__(self, word: str) -> str:
        return str(self._stem(word))
