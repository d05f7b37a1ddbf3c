"""Languages that a lexical index can stem: Snowball's C library, and stop words."""

from __future__ import annotations

from threading import Lock

import Stemmer
from stop_words import AVAILABLE_LANGUAGES, get_stop_words

from memory.errors import Misconfigured
from memory.terms import Language

#: Short on purpose: measured on conversations, longer lists lose words that questions need.
_ENGLISH_STOP_WORDS = """
a an and are as at be been but by did do does for from had has have he her him his how i in is it its me my of on or our
she so that the their them they this to was we were what when where which who whom whose why will with would you your
"""


def language(name: str) -> Language:
    """The language of that name. Raises ``Misconfigured`` naming the choices."""
    if name not in Stemmer.algorithms():
        raise Misconfigured(f"language {name!r} is unknown; choose from {', '.join(sorted(Stemmer.algorithms()))}")
    if name == "english":
        stop_words = frozenset(_ENGLISH_STOP_WORDS.split())
    else:
        stop_words = frozenset(get_stop_words(name)) if name in AVAILABLE_LANGUAGES else frozenset()
    return Language(name=name, stem=_Stemmer(name), stop_words=stop_words)


class _Stemmer:
    """May be shared between threads, which Snowball's own objects may not."""

    def __init__(self, name: str) -> None:
        self._stemmer = Stemmer.Stemmer(name)
        self._lock = Lock()

    def __call__(self, word: str) -> str:
        with self._lock:
            return str(self._stemmer.stemWord(word))
