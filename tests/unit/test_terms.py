from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory.errors import Misconfigured
from memory.terms import Analyzer, number_of, words
from stores.models.stemming import language

ENGLISH = Analyzer(language("english"))


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("She adopted two puppies", ["adopt", "two", "puppi"]),
        ("What is the error?", ["error"]),
        ("ERR-4021", ["err-4021", "err", "4021"]),
        ("v2.3.1", ["v2.3.1", "v2"]),
        ("john_doe", ["john_doe", "john", "doe"]),
        ("ann@example.com", ["ann", "example.com", "exampl", "com"]),
        ("Caroline's and Mel’s", ["carolin", "mel"]),
        ("ﬁne ＡＢＣ", ["fine", "abc"]),  # compatibility forms
        ("我喜欢绿茶", ["我喜", "喜欢", "欢绿", "绿茶"]),
        ("茶", ["茶"]),
        ("Qwen3模型 ok", ["qwen3", "模型", "ok"]),
        ("... !?", []),
    ],
)
def test_terms(text: str, terms: list[str]) -> None:
    assert ENGLISH.terms(text) == terms


def test_a_part_of_an_identifier_finds_it() -> None:
    assert set(ENGLISH.terms("4021")) <= set(ENGLISH.terms("the ERR-4021 came back"))


def test_each_language_has_its_stems_and_stop_words() -> None:
    german = Analyzer(language("german"))
    assert german.terms("Die Häuser") == german.terms("Haus")
    assert "die" in ENGLISH.terms("die Häuser")


def test_an_unknown_language_is_refused_with_the_choices() -> None:
    with pytest.raises(Misconfigured, match="english"):
        language("klingon")


def test_words_are_compared_without_case_and_possessive() -> None:
    assert words("Is it Caroline's?") == ["is", "it", "caroline"]


@given(st.text(max_size=80))
def test_numbers_stand_for_terms(text: str) -> None:
    assert ENGLISH.ids(text).tolist() == [number_of(term) for term in ENGLISH.terms(text)]
