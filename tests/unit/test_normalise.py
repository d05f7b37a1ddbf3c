from __future__ import annotations

import hashlib
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory.normalise import content_hash, normalise_fact


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("Ann likes tea.", "ann likes tea"),
        ("  Ann \t likes\n\ntea!?  ", "ann likes tea"),
        ('"Ann likes tea."', "ann likes tea"),
        ("“Ann likes tea”", "ann likes tea"),
        ("«Ann likes tea»", "ann likes tea"),
        ("ＡＮＮ likes tea", "ann likes tea"),  # full width
        ("Ann lives in STRASSE 5", "ann lives in strasse 5"),
        ("Ann lives in Straße 5", "ann lives in strasse 5"),
        ("Ann's dog, Rex, barks", "ann's dog, rex, barks"),  # inside, punctuation stays
        ("version 3.11", "version 3.11"),
        ("", ""),
        (" \n ", ""),
        ("?!", "?!"),  # nothing else is left to tell it apart
    ],
)
def test_examples(text: str, normal: str) -> None:
    assert normalise_fact(text) == normal


def test_what_differs_in_meaning_stays_different() -> None:
    texts = [
        "Ann likes tea",
        "Ann likes tees",
        "Bob likes tea",
        "Ann likes C",
        "Ann likes C++",
        "Ann likes C#",
        "-5",
        "5",
    ]
    assert len({content_hash(text) for text in texts}) == len(texts)


def test_the_hash_is_sha256_of_the_normal_form() -> None:
    assert content_hash("  Ann likes TEA. ") == hashlib.sha256(b"ann likes tea").hexdigest()


@given(st.text())
def test_any_text_has_a_hash(text: str) -> None:
    assert len(content_hash(text)) == 64


def test_a_lone_surrogate_has_a_hash() -> None:
    assert content_hash("\ud800") != content_hash("\ud801")


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_the_unicode_form_is_irrelevant(text: str) -> None:
    assert normalise_fact(unicodedata.normalize("NFD", text)) == normalise_fact(unicodedata.normalize("NFC", text))


@given(st.lists(st.text("abcXYZ09", min_size=1), min_size=1), st.sampled_from([" ", "\t", "\n", "   ", "\u00a0"]))
def test_white_space_case_and_a_final_stop_are_irrelevant(words: list[str], space: str) -> None:
    assert normalise_fact(space.join(words).upper() + ".") == " ".join(words).lower()


@given(st.text("abc .!?'\" \n", max_size=30))
def test_normal_forms_stay_as_they_are(text: str) -> None:
    assert normalise_fact(normalise_fact(text)) == normalise_fact(text)
