"""Terms: the words of a text as a lexical index counts them.

Words are case-folded and stemmed, stop words go. What may be an identifier ("ERR-4021", "v2.3.1", "john_doe") stays
whole and is findable by its parts, too. Chinese, Japanese and Korean, which have no spaces that a stemmer could use,
become bigrams of characters (as in Lucene's CJKBigramFilter).
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

TermIds = NDArray[np.int64]

_CJK = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff"
_LETTERS = rf"[^\W{_CJK}]+"
_TOKEN = re.compile(rf"(?P<cjk>[{_CJK}]+)|{_LETTERS}(?:[-.'’]{_LETTERS})*")
_IS_CJK = re.compile(rf"[{_CJK}]")
_JOINTS = re.compile(r"[-._]")
_POSSESSIVE = re.compile(r"['’]s$")
MIN_PART_LENGTH = 2  # characters; the "1" of "v2.3.1" would match everything
CACHE_SIZE = 100_000  # words whose terms are remembered


@dataclass(frozen=True, kw_only=True)
class Language:
    """What a lexical index must know of a language."""

    name: str
    stem: Callable[[str], str]
    stop_words: Collection[str]


@dataclass(frozen=True)
class Analyzer:
    """Texts to terms and their numbers, in one language. May be shared between threads."""

    language: Language
    _known: dict[str, tuple[int, ...]] = field(default_factory=dict, repr=False)

    def terms(self, text: str) -> list[str]:
        """The terms in order of appearance, repeated as often as they stand there."""
        return [term for token in _tokens(text) for term in self._of_token(token)]

    def ids(self, text: str) -> TermIds:
        """The same as numbers, of shape ``(terms,)``."""
        return np.array([number for token in _tokens(text) for number in self._numbers(token)], dtype=np.int64)

    def _numbers(self, token: str) -> tuple[int, ...]:
        """Most words were seen before, and a lookup takes a hundredth of the time of a stemmer."""
        known = self._known.get(token)
        if known is None:
            known = tuple(number_of(term) for term in self._of_token(token))
            if len(self._known) >= CACHE_SIZE:
                self._known.clear()
            self._known[token] = known
        return known

    def _of_token(self, token: str) -> Iterator[str]:
        if _IS_CJK.match(token):
            yield from _bigrams(token)
            return
        word = _POSSESSIVE.sub("", token)
        parts = _JOINTS.split(word)
        if len(parts) == 1:
            yield from self._stemmed(word)
            return
        yield word
        for part in parts:
            if len(part) >= MIN_PART_LENGTH:
                yield from self._stemmed(part)

    def _stemmed(self, word: str) -> Iterator[str]:
        if word not in self.language.stop_words:
            yield self.language.stem(word)


def number_of(term: str) -> int:
    """64 bits of the term's hash; two of 100,000 terms share a number with a probability of 3e-10."""
    digest = hashlib.blake2b(term.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True)


def words(text: str) -> list[str]:
    """Words as they are compared with names: case-folded, without possessive endings."""
    return [_POSSESSIVE.sub("", token) for token in _tokens(text)]


def _tokens(text: str) -> list[str]:
    folded = text if text.isascii() else unicodedata.normalize("NFKC", text)
    return [match.group() for match in _TOKEN.finditer(folded.casefold())]


def _bigrams(run: str) -> list[str]:
    return [run] if len(run) == 1 else [run[i : i + 2] for i in range(len(run) - 1)]
