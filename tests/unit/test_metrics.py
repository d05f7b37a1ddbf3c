"""The retrieval metrics of the benchmarks, by hand."""

from __future__ import annotations

import math

import pytest

from benchmarks.metrics import ndcg_at, recall_at, reciprocal_rank

RANKED = ["a", "b", "c", "d"]


def test_recall_is_the_share_found() -> None:
    assert recall_at(2, RANKED, {"b", "d"}) == 0.5
    assert recall_at(4, RANKED, {"b", "d"}) == 1.0
    assert recall_at(4, RANKED, {"x"}) == 0.0


def test_ndcg_discounts_by_place() -> None:
    assert ndcg_at(10, RANKED, {"a", "b"}) == pytest.approx(1.0)
    best = 1 + 1 / math.log2(3)
    assert ndcg_at(10, RANKED, {"b", "d"}) == pytest.approx((1 / math.log2(3) + 1 / math.log2(5)) / best)


def test_reciprocal_rank_is_of_the_first() -> None:
    assert reciprocal_rank(RANKED, {"c", "d"}) == pytest.approx(1 / 3)
    assert reciprocal_rank(RANKED, {"x"}) == 0.0
