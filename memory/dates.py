"""Dates in English text: the time that an expression names, seen from the moment it was said."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

_MONTHS = (
    "january february march april may june july august september october november december".split()  # noqa: SIM905
)
_DAYS = "monday tuesday wednesday thursday friday saturday sunday".split()  # noqa: SIM905
_NUMBERS = {"a": 1, "an": 1, "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "ten": 10}
_OFFSETS = {"the day before yesterday": -2, "yesterday": -1, "last night": -1, "this morning": 0, "today": 0}
_OFFSETS |= {"tonight": 0, "tomorrow": 1}
_STEP_OF = {"last": -1, "this": 0, "next": 1}
_MONTH = "|".join(_MONTHS)
_AMOUNT = rf"(?P<number>\d{{1,3}}|{'|'.join(_NUMBERS)}) (?P<unit>day|week|month|year)s?"
_ABOUT = timedelta(days=4)  # what "two weeks ago" may be off by


class When(NamedTuple):
    """A resolved time expression."""

    start: datetime  # its first day
    words: str  # the same without reference to the day it was said on
    end: datetime  # the day after its last


class Period(NamedTuple):
    """From ``start``, inclusive, to ``end``, exclusive."""

    start: datetime
    end: datetime


def resolved(text: str, now: datetime) -> tuple[str, When | None]:
    """``text`` with its first time expression spelt out, and that time."""
    found = _first(_EXPRESSIONS, text, now)
    if found is None:
        return text, None
    match, when = found
    return text[: match.start()] + when.words + text[match.end() :], when


def named_period(text: str, now: datetime) -> Period | None:
    """The time that a question names: a day, week, month or year; ``None`` when it names none.

    A month without a year is the last one that has begun: memories lie behind.
    """
    found = _first(_EXPRESSIONS, text, now) or _first(_QUESTION_EXPRESSIONS, text, now)
    if found is None:
        return None
    _, when = found
    about = _ABOUT if when.words.startswith("around ") else timedelta()
    return Period(when.start - about, when.end + about)


_Resolver = Callable[[re.Match[str], datetime], When]


def _first(
    expressions: Sequence[tuple[re.Pattern[str], _Resolver]], text: str, now: datetime
) -> tuple[re.Match[str], When] | None:
    for pattern, resolver in expressions:
        if match := pattern.search(text):
            try:
                return match, resolver(match, now)
            except (ValueError, OverflowError):  # 31 June, or the year 0: no date after all
                continue
    return None


def _day(date: datetime, prefix: str = "on", *, days: int = 1) -> When:
    start = date.replace(hour=0, minute=0, second=0, microsecond=0)
    return When(start=start, words=f"{prefix} {start.day} {start:%B %Y}", end=start + timedelta(days=days))


def _month(now: datetime, shift: int) -> When:
    start, end = (_first_of_month(now, each) for each in (shift, shift + 1))
    return When(start=start, words=f"in {start:%B %Y}", end=end)


def _first_of_month(now: datetime, shift: int) -> datetime:
    year, month = divmod(now.year * 12 + now.month - 1 + shift, 12)
    return _day(now.replace(year=year, month=month + 1, day=1)).start


def _year(now: datetime, shift: int) -> When:
    start = _day(now.replace(year=now.year + shift, month=1, day=1)).start
    return When(start=start, words=f"in {start.year}", end=start.replace(year=start.year + 1))


def _offset(match: re.Match[str], now: datetime) -> When:
    return _day(now + timedelta(days=_OFFSETS[match["offset"].casefold()]))


def _step(match: re.Match[str], now: datetime) -> When:
    """``last week``, ``next month``, ``this Friday``."""
    step, unit = _STEP_OF[match["step"].casefold()], match["unit"].casefold()
    if unit == "month":
        return _month(now, step)
    if unit == "year":
        return _year(now, step)
    monday = now - timedelta(days=now.weekday()) + timedelta(weeks=step)
    if unit == "week":
        return _day(monday, "in the week of", days=7)
    if unit == "weekend":
        return _day(monday + timedelta(days=5), "on the weekend of", days=2)
    return _day(_weekday(now, step, _DAYS.index(unit)))


def _weekday(now: datetime, step: int, weekday: int) -> datetime:
    """The nearest such day before (last) or after (this, next) ``now``."""
    ahead = (weekday - now.weekday()) % 7
    if step < 0:
        return now - timedelta(days=7 - ahead if ahead else 7)
    return now + timedelta(days=ahead or 7 * step)


def _distance(match: re.Match[str], now: datetime) -> When:
    """``two weeks ago``, ``in 3 days``; as vague as it was said."""
    number = match["number"].casefold()
    amount = _NUMBERS.get(number) or int(number)
    amount = -amount if match["ago"] else amount
    unit = match["unit"].casefold()
    if unit == "year":
        return _year(now, amount)
    if unit == "month":
        return _month(now, amount)
    return _day(now + timedelta(days=amount), "on") if unit == "day" else _day(now + timedelta(weeks=amount), "around")


def _calendar(match: re.Match[str], now: datetime) -> When:
    """``5 May``, ``May 5th, 2023``, ``2023-05-05``; without a year, the nearest one."""
    name, day = match["month"].casefold(), int(match["day"])
    month = int(name) if name.isdigit() else _MONTHS.index(name) + 1
    years = [int(match["year"])] if match["year"] else [now.year - 1, now.year, now.year + 1]
    dates = [now.replace(year=year, month=month, day=day) for year in years]
    return _day(min(dates, key=lambda date: abs(date - now)))


def _calendar_month(match: re.Match[str], now: datetime) -> When:
    """``in May``, ``May 2023``."""
    month = _MONTHS.index(match["month"].casefold()) + 1
    year = int(match["year"]) if match["year"] else now.year - (month > now.month)
    return _month(now.replace(year=year, month=month, day=1), 0)


def _calendar_year(match: re.Match[str], now: datetime) -> When:
    return _year(now.replace(year=int(match["year"]), month=1, day=1), 0)


def _compiled(*expressions: tuple[str, _Resolver]) -> tuple[tuple[re.Pattern[str], _Resolver], ...]:
    return tuple((re.compile(pattern, re.IGNORECASE | re.ASCII), resolver) for pattern, resolver in expressions)


_ON, _TH, _YEAR = r"(?:\bon )?(?:\bthe )?\b", "(?:st|nd|rd|th)?", r"(?:,? (?P<year>\d{4})\b)?"
_EXPRESSIONS = _compiled(
    (rf"\b(?P<offset>{'|'.join(_OFFSETS)})\b(?!'s)", _offset),
    (rf"\b(?P<step>last|this|next) (?P<unit>weekend|week|month|year|{'|'.join(_DAYS)})\b(?!'s)", _step),
    (rf"(?:\b(?:about|around|almost|like) )?\b{_AMOUNT} (?P<ago>ago)\b", _distance),
    (rf"\bin {_AMOUNT}\b(?!')(?P<ago>)", _distance),
    (rf"{_ON}(?P<year>\d{{4}})-(?P<month>\d\d)-(?P<day>\d\d)\b", _calendar),
    (rf"{_ON}(?P<day>\d{{1,2}}){_TH} (?:of )?(?P<month>{_MONTH})\b{_YEAR}", _calendar),
    (rf"{_ON}(?P<month>{_MONTH}) (?P<day>\d{{1,2}}){_TH}\b{_YEAR}", _calendar),
)
#: Too vague to date a fact, good enough to prefer some memories.
_QUESTION_EXPRESSIONS = _compiled(
    (rf"\b(?:in|of|during|since|early|late) (?P<month>{_MONTH})\b{_YEAR}", _calendar_month),
    (rf"\b(?P<month>{_MONTH}),? (?P<year>\d{{4}})\b", _calendar_month),
    (r"\b(?:in|of|during) (?P<year>(?:19|20)\d\d)\b", _calendar_year),
)
