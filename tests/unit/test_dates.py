from __future__ import annotations

from datetime import UTC, datetime

import pytest

from memory.dates import named_period

NOW = datetime(2026, 3, 4, 15, 30, tzinfo=UTC)  # a Wednesday


@pytest.mark.parametrize(
    ("text", "start", "end"),
    [
        ("What did I eat yesterday?", (2026, 3, 3), (2026, 3, 4)),
        ("Who came last week?", (2026, 2, 23), (2026, 3, 2)),
        ("Who came last month?", (2026, 2, 1), (2026, 3, 1)),
        ("Who came last year?", (2025, 1, 1), (2026, 1, 1)),
        ("What happened on the 5th of May 2023?", (2023, 5, 5), (2023, 5, 6)),
        ("What happened on 2023-05-05?", (2023, 5, 5), (2023, 5, 6)),
        ("What did she do in May?", (2025, 5, 1), (2025, 6, 1)),  # the last that has begun
        ("What did she do in March?", (2026, 3, 1), (2026, 4, 1)),
        ("What did she do in May 2023?", (2023, 5, 1), (2023, 6, 1)),
        ("her plans, December 2023", (2023, 12, 1), (2024, 1, 1)),
        ("Where did they live in 2019?", (2019, 1, 1), (2020, 1, 1)),
        ("What did I say two weeks ago?", (2026, 2, 14), (2026, 2, 23)),  # as vague as it was said
    ],
)
def test_a_question_names_a_time(text: str, start: tuple[int, int, int], end: tuple[int, int, int]) -> None:
    period = named_period(text, NOW)
    assert period is not None
    assert (period.start, period.end) == (datetime(*start, tzinfo=UTC), datetime(*end, tzinfo=UTC))


@pytest.mark.parametrize(
    "text", ["What does she like?", "May I ask?", "31 June", "the march of time", "in 5 minutes", "room 2019"]
)
def test_nothing_named_is_no_period(text: str) -> None:
    assert named_period(text, NOW) is None
