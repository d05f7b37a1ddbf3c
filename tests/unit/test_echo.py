"""Memories that come back inside an interaction."""

from __future__ import annotations

from memory.echo import EPISODES, FACTS, PREAMBLE, without_recalled

CONTEXT = f"""{PREAMBLE}

{FACTS}:
- Ann has a dog called Rex.
- Ann is a nurse.

{EPISODES}:
- [8 May 2023] Ann: I have a dog
  called Rex.
- [9 May 2023] Bob: Nice!"""


def test_a_context_of_ours_is_taken_out_and_the_rest_stays() -> None:
    assert without_recalled(f"You help Ann.\n\n{CONTEXT}\n\nWhat is my dog called?") == (
        "You help Ann.\n\n\n\n\n\nWhat is my dog called?"
    )
    assert without_recalled(CONTEXT) == ""


def test_other_lists_and_other_texts_stay() -> None:
    for text in ("Known facts:\nnone", "- milk\n- eggs", "Known facts: - a", "I know facts:\n- one", ""):
        assert without_recalled(text) == text
