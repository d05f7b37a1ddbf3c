"""The resident index in lockstep with a model that computes everything anew, in plain loops."""

from __future__ import annotations

import math
import uuid
from collections import Counter, defaultdict
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from memory.columns import Entry
from memory.dates import Period
from memory.decay import frequency, recency
from memory.lexical import K1, B
from memory.normalise import content_hash
from memory.ports import Vectors
from memory.records import MemoryId, SessionId, Tier, UserId
from memory.relevance import BLEND
from memory.scoring import TYPE_BONUS, ScoringWeights
from memory.terms import Analyzer, Language
from serve.resident.index import ResidentIndex
from serve.resident.search import Query, Winner, read_question, search
from tests.builders import NOW

ANALYZER = Analyzer(Language(name="plain", stem=str, stop_words=frozenset({"the"})))
DIMENSION = 8
WEIGHTS = ScoringWeights()
RELEVANCE_ALONE = ScoringWeights(relevance=1, recency=0, importance=0, frequency=0, type_bonus=0)
Rows = Mapping[MemoryId, tuple[Entry, Vectors]]


def unit(seed: int) -> Vectors:
    """A unit vector as half precision keeps it."""
    raw = np.random.default_rng(seed).normal(size=DIMENSION)
    return (raw / np.linalg.norm(raw)).astype(np.float16).astype(np.float32)


def entry(number: int, text: str = "text", **changes: Any) -> Entry:
    values: dict[str, Any] = {
        "id": MemoryId(uuid.UUID(int=number + 1)),
        "tier": Tier.EPISODIC,
        "text": text,
        "words": content_hash(f"{number}"),
        "created_at": NOW - timedelta(hours=number),
        "importance": 0.5,
    }
    return Entry(**values | changes)


def index_of(rows: Rows) -> ResidentIndex:
    index = ResidentIndex(dimension=DIMENSION, analyzer=ANALYZER)
    for one, vector in rows.values():
        index.put([one], vector[None].astype(np.float16))
    return index


def query(text: str, index: ResidentIndex, seed: int = 0, **changes: Any) -> Query:
    asked = read_question(text, [index], ANALYZER)
    values: dict[str, Any] = {
        "vector": unit(seed),
        "terms": asked.terms,
        "speakers": asked.speakers,
        "now": NOW,
        "weights": WEIGHTS,
        "limit": 50,
    }
    return Query(**values | changes)


# ---- the plain model


def plain(rows: Rows, asked: Query, names: set[str]) -> list[tuple[MemoryId, float]]:
    """Ids and totals, best first."""
    ids = list(rows)
    allowed = {i for i in ids if _allowed(rows[i][0], asked)}
    dense = _from_worst({i: float(rows[i][1] @ asked.vector) for i in allowed}, single=lambda cosine: max(0.0, cosine))
    lexical, session = _lexical(rows, asked.terms, allowed)
    fused = {i: BLEND.dense * dense.get(i, 0.0) + BLEND.lexical * lexical[i] for i in ids}
    near = _neighbours(rows)
    smooth = {i: fused[i] + sum(w * fused[n] for w, n in near[i] if n in fused) for i in ids}
    spread = _from_worst({i: smooth[i] for i in allowed})
    total = {}
    for i in allowed:
        one = rows[i][0]
        evidence = spread[i] + BLEND.session * session[i]
        evidence += BLEND.participant * bool(one.speaker and set(one.speaker.casefold().split()) & names)
        evidence += BLEND.period * bool(asked.period and asked.period.start <= one.created_at < asked.period.end)
        total[i] = evidence
    final = {i: value**BLEND.contrast for i, value in _from_worst(total).items()}
    scored = [(i, _score(rows[i][0], final[i], asked)) for i in allowed]
    scored.sort(key=lambda pair: (-pair[1], -rows[pair[0]][0].created_at.timestamp(), pair[0].int))
    kept: list[tuple[MemoryId, float]] = []
    for i, value in scored:
        if max(0.0, float(rows[i][1] @ asked.vector)) < asked.floor:
            continue
        if not any(_alike(rows[i], rows[other]) for other, _ in kept):
            kept.append((i, value))
    return kept[: asked.limit]


def _allowed(one: Entry, asked: Query) -> bool:
    late = one.expires_at is not None and one.expires_at <= asked.now
    early = asked.since is not None and one.created_at < asked.since
    return one.tier in asked.tiers and not late and not early


def _from_worst(
    values: Mapping[MemoryId, float], single: Any = lambda value: min(1.0, max(0.0, value))
) -> dict[MemoryId, float]:
    if not values:
        return {}
    low, high = min(values.values()), max(values.values())
    return {i: (v - low) / (high - low) if high - low > 1e-9 else single(v) for i, v in values.items()}


def _bm25(texts: Mapping[Any, list[int]], terms: Counter[int]) -> dict[Any, float]:
    average = sum(map(len, texts.values())) / len(texts) if texts else 0.0
    scores = dict.fromkeys(texts, 0.0)
    for term, times in terms.items():
        containing = sum(term in text for text in texts.values())
        weight = math.log(1 + (len(texts) - containing + 0.5) / (containing + 0.5))
        for key, text in texts.items():
            count = text.count(term)
            if count:
                norm = K1 * (1 - B + B * len(text) / average)
                scores[key] += times * weight * count / (count + norm)
    return scores


def _lexical(
    rows: Rows, terms: Counter[int], allowed: set[MemoryId]
) -> tuple[dict[MemoryId, float], dict[MemoryId, float]]:
    texts = {i: ANALYZER.ids(one.text).tolist() for i, (one, _) in rows.items()}
    sessions: dict[SessionId, list[int]] = defaultdict(list)
    for i, (one, _) in rows.items():
        if one.session_id is not None:
            sessions[one.session_id] += texts[i]
    of_session = _bm25(sessions, terms)
    by_row = _bm25(texts, terms)
    by_session = {i: of_session.get(_session(rows, i), 0.0) for i in rows}
    return _of_best(by_row, allowed), _of_best(by_session, allowed)


def _session(rows: Rows, i: MemoryId) -> SessionId | None:
    one = rows[i][0]
    if one.source_id is not None:
        return rows[one.source_id][0].session_id if one.source_id in rows else None
    return one.session_id


def _of_best(values: Mapping[MemoryId, float], allowed: set[MemoryId]) -> dict[MemoryId, float]:
    best = max((values[i] for i in allowed), default=0.0)
    return {i: value / best if best > 0 and i in allowed else 0.0 for i, value in values.items()}


def _neighbours(rows: Rows) -> dict[MemoryId, list[tuple[float, MemoryId]]]:
    sessions: dict[SessionId, list[MemoryId]] = defaultdict(list)
    for i, (one, _) in rows.items():
        if one.session_id is not None:
            sessions[one.session_id].append(i)
    near: dict[MemoryId, list[tuple[float, MemoryId]]] = {i: [] for i in rows}
    for turns in sessions.values():
        turns.sort(key=lambda i: (rows[i][0].created_at, i.int))
        for place, i in enumerate(turns):
            for step, weight in enumerate(BLEND.neighbours, 1):
                near[i] += [(weight, turns[p]) for p in (place - step, place + step) if 0 <= p < len(turns)]
    for i, (one, _) in rows.items():
        if one.source_id in rows:
            source = rows[one.source_id][0]
            near[i] = [(BLEND.neighbours[0], source.id)]
            if source.session_id is not None:
                turns = sessions[source.session_id]
                place = turns.index(source.id)
                near[i] += [(BLEND.neighbours[1], turns[place - 1])] if place else []
    return near


def _score(one: Entry, relevance: float, asked: Query) -> float:
    w = asked.weights
    return (
        w.relevance * relevance
        + w.recency * recency(one.created_at, asked.now, half_life_days=w.half_life_days)
        + w.importance * one.importance
        + w.frequency * frequency(one.access_count)
        + w.type_bonus * TYPE_BONUS[one.tier]
    )


def _alike(a: tuple[Entry, Vectors], b: tuple[Entry, Vectors]) -> bool:
    events = {a[0].tier, b[0].tier} <= {Tier.EPISODIC, Tier.WORKING}
    if events:
        return a[0].words == b[0].words and a[0].speaker == b[0].speaker
    return a[0].words == b[0].words or float(a[1] @ b[1]) >= 0.97


def agrees(found: list[Winner], expected: list[tuple[MemoryId, float]]) -> None:
    """The same ids in the same order; where totals are equal but for rounding, the order is open."""
    assert [winner.parts.total for winner in found] == pytest.approx([total for _, total in expected], abs=1e-4)
    groups: defaultdict[int, tuple[set[MemoryId], set[MemoryId]]] = defaultdict(lambda: (set(), set()))
    number = 0
    for place, (winner, (i, total)) in enumerate(zip(found, expected, strict=True)):
        number += place > 0 and abs(total - expected[place - 1][1]) > 2e-4
        groups[number][0].add(winner.id)
        groups[number][1].add(i)
    assert all(ours == theirs for ours, theirs in groups.values())


# ---- lockstep

_WORD = st.sampled_from(["heron", "fish", "tea", "puppy", "the", "ERR-4021"])
WORDS = st.lists(_WORD, min_size=1, max_size=5).map(" ".join)
QUESTIONS = st.sampled_from(["heron fish", "Ann tea", "what did Bob say of the puppy", "ERR-4021", "Ann", "nothing"])


class Lockstep(RuleBasedStateMachine):
    """Random changes; after each, both are asked the same."""

    @initialize()
    def start(self) -> None:
        self.index = ResidentIndex(dimension=DIMENSION, analyzer=ANALYZER)
        self.rows: dict[MemoryId, tuple[Entry, Vectors]] = {}
        self.number = 0

    @rule(text=WORDS, session=st.sampled_from(["s", "t", None]), speaker=st.sampled_from(["Ann", "Bob Ray", None]),
          hours=st.integers(0, 400), accesses=st.integers(0, 60), expires=st.sampled_from([None, -1, 5]))  # fmt: skip
    def say(
        self, text: str, session: str | None, speaker: str | None, hours: int, accesses: int, expires: int | None
    ) -> None:
        self.number += 1
        one = entry(
            self.number,
            text,
            session_id=None if session is None else SessionId(session),
            speaker=speaker,
            created_at=NOW - timedelta(hours=hours),
            access_count=accesses,
            expires_at=None if expires is None else NOW + timedelta(hours=expires),
            user_id=UserId("u"),
        )
        self._put(one, self.number)

    @rule(text=WORDS, source=st.floats(0, 0.999), tier=st.sampled_from([Tier.SEMANTIC, Tier.PROCEDURAL]))
    def learn(self, text: str, source: float, tier: Tier) -> None:
        self.number += 1
        turns = [i for i, (one, _) in self.rows.items() if one.tier is Tier.EPISODIC]
        origin = turns[int(source * len(turns))] if turns else None
        self._put(entry(self.number, text, tier=tier, source_id=origin, importance=0.8), self.number)

    @rule(which=st.floats(0, 0.999), text=WORDS)
    def change(self, which: float, text: str) -> None:
        if self.rows:
            old = list(self.rows.values())[int(which * len(self.rows))][0]
            self.number += 1
            changed = {name: getattr(old, name) for name in Entry.__slots__} | {"text": text}
            self._put(Entry(**changed), self.number)

    @rule(which=st.floats(0, 0.999), count=st.integers(1, 3))
    def forget(self, which: float, count: int) -> None:
        place = int(which * len(self.rows))
        ids = list(self.rows)[place : place + count]
        self.index.remove([*ids, MemoryId(uuid.UUID(int=10**9))])
        for i in ids:
            del self.rows[i]

    @rule(text=QUESTIONS, seed=st.integers(0, 5), changes=st.sampled_from([
        {}, {"tiers": frozenset([Tier.EPISODIC])}, {"tiers": frozenset([Tier.SEMANTIC, Tier.PROCEDURAL])},
        {"since": NOW - timedelta(hours=100)}, {"floor": 0.2}, {"limit": 3},
        {"period": Period(NOW - timedelta(hours=50), NOW)},
        {"weights": RELEVANCE_ALONE}]))  # fmt: skip
    def ask(self, text: str, seed: int, changes: dict[str, Any]) -> None:
        asked = query(text, self.index, seed, **changes)
        names = set(self.index.named(text))
        agrees(search([self.index], asked), plain(self.rows, asked, names))

    @invariant()
    def agrees_with_the_model(self) -> None:
        if hasattr(self, "index"):
            asked = query("tea puppy", self.index, weights=RELEVANCE_ALONE)
            agrees(search([self.index], asked), plain(self.rows, asked, set()))
            assert len(self.index) == len(self.rows)
            named = {word for one, _ in self.rows.values() if one.speaker for word in one.speaker.casefold().split()}
            assert set(self.index.named("ann bob ray")) == named

    def _put(self, one: Entry, seed: int) -> None:
        vector = unit(1000 + seed)
        self.index.put([one], vector[None].astype(np.float16))
        self.rows.pop(one.id, None)
        self.rows[one.id] = (one, vector)


Lockstep.TestCase.settings = settings(
    max_examples=100, stateful_step_count=40, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
TestLockstep = Lockstep.TestCase


# ---- what it is for


def said(*lines: str, session: str = "s", start: int = 0) -> dict[MemoryId, tuple[Entry, Vectors]]:
    rows = {}
    for number, line in enumerate(lines, start):
        speaker, _, text = line.partition(": ")
        one = entry(
            number,
            f"{speaker}: {text}",
            speaker=speaker,
            session_id=SessionId(session),
            created_at=NOW + timedelta(seconds=number),
        )
        rows[one.id] = (one, unit(7))  # all alike, so that words and neighbours decide
    return rows


def best(rows: Rows, text: str, **changes: Any) -> str:
    index = index_of(rows)
    return rows[search([index], query(text, index, **changes))[0].id][0].text


def test_an_answer_is_found_by_the_question_before_it() -> None:
    rows = said("Ann: lunch was fine", "Bob: what pet did you adopt", "Ann: a puppy, finally", "Bob: see you")
    index = index_of(rows)
    ranked = [rows[winner.id][0].text for winner in search([index], query("pet adopted adopt", index))]
    assert ranked[0] == "Bob: what pet did you adopt"
    assert ranked.index("Ann: a puppy, finally") < ranked.index("Bob: see you")


def test_who_is_named_is_preferred_and_no_search_term() -> None:
    rows = said("Ann: I like tea", "Bob: I like tea", "Bob: Ann Ann Ann")
    assert best(rows, "Does Bob like tea?") == "Bob: I like tea"
    assert best(rows, "Does Ann like tea?") == "Ann: I like tea"


def test_a_named_time_is_preferred() -> None:
    rows = said("Ann: tea again", "Ann: tea again and again")
    first = next(iter(rows.values()))[0]
    period = Period(first.created_at, first.created_at + timedelta(microseconds=1))
    assert best(rows, "tea", period=period) == "Ann: tea again"


def test_identifiers_are_found_whole() -> None:
    rows = said("Ann: some error", "Ann: ERR-4021 was it", "Ann: ERR-4022 was it")
    assert best(rows, "ERR-4021") == "Ann: ERR-4021 was it"


def test_several_indexes_are_one_search() -> None:
    one, other = said("Ann: tea", "Bob: fish"), said("Ann: heron", session="t", start=10)
    whole = index_of({**one, **other})
    parts = [index_of(one), index_of(other)]
    asked = query("heron tea", whole, tiers=frozenset([Tier.EPISODIC]))
    assert [w.id for w in search(parts, asked)] == [w.id for w in search([whole], asked)]


def test_the_sessions_messages_are_working_memory() -> None:
    rows = said("Ann: tea", "Ann: fish")
    index, first = index_of(rows), next(iter(rows))
    winners = search([index], query("tea", index, working=[first]))
    assert {w.id: w.tier for w in winners}[first] is Tier.WORKING
    only = search([index], query("tea", index, working=[first], tiers=frozenset([Tier.WORKING])))
    assert [w.id for w in only] == [first]


def test_memory_per_memory_is_bounded() -> None:
    """All structures together, at 384 dimensions, with sentences of some 20 words from a vocabulary of 5,000."""
    random = np.random.default_rng(0)
    index = ResidentIndex(dimension=384, analyzer=ANALYZER)
    for start in range(0, 20_000, 2_000):
        texts = [" ".join(f"w{n}" for n in random.zipf(1.3, 20) % 5_000) for _ in range(2_000)]
        entries = [entry(start + n, text, session_id=SessionId(f"s{n // 20}")) for n, text in enumerate(texts)]
        index.put(entries, np.zeros((2_000, 384), dtype=np.float16))
    assert index.nbytes / len(index) <= 1.2 * 1024


def test_moments_keep_their_microseconds() -> None:
    moment = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=NOW.tzinfo)
    one = entry(0, created_at=moment)
    index = index_of({one.id: (one, unit(1))})
    (winner,) = search([index], query("text", index))
    assert winner.created_us % 1_000_000 == 678901
