"""The whole search over resident indexes: evidence, five factors, distinct winners."""

from __future__ import annotations

import copy
import re
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime

import numpy as np

from memory.columns import EPISODIC, TIERS, WORKING, Columns, microseconds
from memory.dates import Period
from memory.lexical import Scores
from memory.ports import Vectors
from memory.ranking import Factor, Factors, RowNumbers, best
from memory.records import MemoryId, Tier
from memory.relevance import BLEND, Blend, Evidence, Mask, dense_evidence, lexical_evidence, relevance
from memory.scoring import ScoreParts, ScoringWeights
from memory.terms import Analyzer
from serve.resident.index import ResidentIndex

NEAREST = 1024  # memories whose cosine counts as evidence; the others are alike in being far


@dataclass(frozen=True, kw_only=True)
class Query:
    """One search over indexes."""

    vector: Vectors  # unit, of the query without the names
    terms: Counter[int]
    speakers: frozenset[int]  # named in the query
    now: datetime
    weights: ScoringWeights
    limit: int
    floor: float = 0.0  # least cosine of a hit
    tiers: frozenset[Tier] = frozenset(Tier)
    since: datetime | None = None
    until: datetime | None = None
    period: Period | None = None  # named in the query
    working: Sequence[MemoryId] = ()  # messages of the current session
    blend: Blend = BLEND


@dataclass(frozen=True, kw_only=True, slots=True)
class Winner:
    """A row in the ranking."""

    id: MemoryId
    tier: Tier
    created_us: int
    row: int  # in the first index, if it is smaller than that one's size
    parts: ScoreParts


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What a question asks for, apart from the names in it."""

    text: str  # without the names; they say who speaks, and would draw everything that mentions them
    terms: Counter[int]
    speakers: frozenset[int]


def read_question(text: str, parts: Sequence[ResidentIndex], analyzer: Analyzer) -> Asked:
    """Split a question into who is named and what is asked."""
    names = {name for part in parts for name in part.named(text)}
    rest = _without(text, names)
    return Asked(
        text=rest,
        terms=Counter(map(int, analyzer.ids(rest))),
        speakers=frozenset().union(*(part.speakers(names) for part in parts)),
    )


def _without(text: str, names: Collection[str]) -> str:
    """The text without those words; a text of nothing else stays."""
    if not names:
        return text
    pattern = rf"(?i)(?<!\w)(?:{'|'.join(map(re.escape, sorted(names, key=len, reverse=True)))})(?:['’]s)?(?!\w)"
    rest = re.sub(r"\s+", " ", re.sub(pattern, " ", text)).strip()
    return rest if re.search(r"\w", rest) else text


def search(parts: Sequence[ResidentIndex], query: Query) -> list[Winner]:
    """The best memories of all parts together, in order, each statement once."""
    columns = _as_seen(Columns.joined([part.columns for part in parts]), query)
    allowed = _allowed(columns, query)
    evidence = _evidence(parts, columns, query, allowed)
    factors = Factors.of(
        columns,
        relevance(evidence, columns, allowed, query.blend),
        now_us=microseconds(query.now),
        half_life_days=query.weights.half_life_days,
    )
    totals = factors.total(query.weights)
    rows = best(
        totals,
        columns,
        allowed,
        limit=query.limit,
        vectors=lambda rows: _vectors(parts, rows),
        admitted=lambda vectors: np.clip(vectors @ query.vector, 0.0, 1.0) >= query.floor,
    )
    return [_winner(columns, factors, totals, row) for row in rows]


def _as_seen(columns: Columns, query: Query) -> Columns:
    """Messages of the current session count as working memory."""
    if not query.working or Tier.WORKING not in query.tiers:
        return columns
    seen = copy.copy(columns)
    seen.tier = columns.tier.copy()
    rows = columns.rows_of(query.working)
    seen.tier[rows[columns.tier[rows] == EPISODIC]] = WORKING
    return seen


def _allowed(columns: Columns, query: Query) -> Mask:
    """Which rows the search may return."""
    allowed = columns.expires > microseconds(query.now)
    if query.tiers != frozenset(Tier):
        allowed &= np.isin(columns.tier, [TIERS.index(tier) for tier in query.tiers])
    if query.since is not None:
        allowed &= columns.created >= microseconds(query.since)
    if query.until is not None:
        allowed &= columns.created < microseconds(query.until)
    return allowed


def _evidence(parts: Sequence[ResidentIndex], columns: Columns, query: Query, allowed: Mask) -> Evidence:
    rows, cosines = _nearest(parts, query.vector, allowed)
    lexical, session = lexical_evidence([part.lexical for part in parts], query.terms, columns, allowed)
    return Evidence(
        dense=dense_evidence(len(columns), rows, cosines),
        lexical=lexical,
        session=session,
        spoken=np.isin(columns.speaker, list(query.speakers)) if query.speakers else None,
        dated=_dated(columns, query.period),
    )


def _dated(columns: Columns, period: Period | None) -> Mask | None:
    if period is None:
        return None
    return (columns.created >= microseconds(period.start)) & (columns.created < microseconds(period.end))


def _nearest(parts: Sequence[ResidentIndex], vector: Vectors, allowed: Mask) -> tuple[RowNumbers, Scores]:
    """The nearest of all parts."""
    start, found = 0, []
    for part in parts:
        rows, cosines = part.vectors.nearest(vector, NEAREST, allowed[start : start + len(part)])
        found.append((rows + start, cosines))
        start += len(part)
    if len(found) == 1:
        return found[0]
    rows, cosines = (np.concatenate(each) for each in zip(*found, strict=True))
    order = np.argsort(-cosines, kind="stable")[:NEAREST]
    return rows[order], cosines[order]


def _vectors(parts: Sequence[ResidentIndex], rows: RowNumbers) -> Vectors:
    if len(parts) == 1:
        return parts[0].vectors.get(rows)
    starts = np.cumsum([0, *map(len, parts)])
    owner = np.searchsorted(starts, rows, side="right") - 1
    found = np.empty((len(rows), parts[0].vectors.dimension), dtype=np.float32)
    for number, part in enumerate(parts):
        mine = owner == number
        found[mine] = part.vectors.get(rows[mine] - starts[number])
    return found


def _winner(columns: Columns, factors: Factors, totals: Factor, row: int) -> Winner:
    return Winner(
        id=columns.id_of(row),
        tier=TIERS[columns.tier[row]],
        created_us=int(columns.created[row]),
        row=row,
        parts=factors.parts(row, float(totals[row])),
    )
