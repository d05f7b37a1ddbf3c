"""The lexical index in lockstep with plain lists: whatever comes and goes, postings are those of what is left."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memory.lexical import K1, B, LexicalIndex, idf, saturated


def array(*terms: int) -> np.ndarray:
    return np.array(terms, dtype=np.int64)


def found(index: LexicalIndex, term: int) -> dict[int, float]:
    postings = index.postings(term)
    return dict(zip(postings.rows.tolist(), postings.counts.tolist(), strict=True))


def test_it_is_lucenes_formula() -> None:
    """The scores of Kamphuis et al. 2020, "Which BM25 Do You Mean?", written out."""
    norm = K1 * (1 - B + B * 3 / 2)
    got = float(saturated(np.array([2.0], dtype=np.float32), np.array([3.0], dtype=np.float32), 2.0)[0])
    assert got == pytest.approx(2 / (2 + norm))
    assert idf(1, 3) == pytest.approx(math.log(1 + 2.5 / 1.5))


def test_nothing_is_found_in_nothing() -> None:
    index = LexicalIndex()
    index.append([])
    index.append([array()])
    assert found(index, 7) == {}
    assert index.lengths.tolist() == [0]


def test_a_term_that_fills_a_text_is_counted_to_the_bound() -> None:
    index = LexicalIndex()
    index.append([array(*[7] * 300)])
    assert found(index, 7) == {0: 255}


_TEXT = st.lists(st.integers(0, 6), max_size=8)
_STEP = st.one_of(
    st.tuples(st.just("append"), st.lists(_TEXT, max_size=5)), st.tuples(st.just("remove"), st.floats(0, 1))
)


@settings(deadline=None)
@given(st.lists(_STEP, max_size=25))
def test_it_is_always_the_index_of_what_is_left(steps: list[tuple[str, object]]) -> None:
    index, model = LexicalIndex(), list[list[int]]()
    for step, value in steps:
        if step == "append":
            assert isinstance(value, list)
            index.append([array(*text) for text in value])
            model += value
        elif model:
            assert isinstance(value, float)
            row = min(len(model) - 1, int(value * len(model)))
            if row == len(model) - 1:
                index.remove_last()
                model.pop()
            else:
                index.replace_by_last(row)
                model[row] = model.pop()
        assert index.lengths.tolist() == [len(text) for text in model]
        for term in range(7):
            assert found(index, term) == {row: text.count(term) for row, text in enumerate(model) if term in text}
