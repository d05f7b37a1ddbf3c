"""What each kind of evidence adds to the retrieval of conversation turns, without servers.

``python -m benchmarks.ablation --data FILE [--json OUT]``

The same protocol and figures as ``benchmarks.locomo``, on resident indexes in this process, with relevance alone.
"""

from __future__ import annotations

import argparse
import json
import uuid
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.locomo import ADVERSARIAL, AGENT, METRICS, Question, average, measure, questions
from memory.columns import Entry
from memory.normalise import content_hash
from memory.phrasing import embedded_text, episode_text
from memory.ports import Vectors
from memory.records import MemoryId, SessionId, Tier
from memory.relevance import BLEND, Blend
from memory.scoring import ScoringWeights
from memory.terms import Analyzer
from pipelines.conversations import Defaults, WriteItem, read
from serve.resident.index import ResidentIndex
from serve.resident.search import Asked, Query, read_question, search
from stores.models.minilm import MiniLM
from stores.models.stemming import language

RELEVANCE_ALONE = ScoringWeights(relevance=1.0, recency=0.0, importance=0.0, frequency=0.0, type_bonus=0.0)


@dataclass(frozen=True, kw_only=True)
class Variant:
    name: str
    blend: Blend
    names_in_query: bool = False  # leave participants' names in what is embedded and looked up
    dated_text: bool = False  # embed "[date] speaker: text" and not "speaker: text"


_BARE = Blend(neighbours=(), session=0.0, participant=0.0, contrast=1.0)
VARIANTS = (
    Variant(name="cosine alone", blend=replace(_BARE, lexical=0.0), names_in_query=True),
    Variant(name="BM25 alone", blend=replace(_BARE, dense=0.0), names_in_query=True),
    Variant(name="both", blend=_BARE, names_in_query=True),
    Variant(name="+ the two neighbouring turns", blend=replace(_BARE, neighbours=(0.3,)), names_in_query=True),
    Variant(name="+ two more", blend=replace(_BARE, neighbours=(0.3, 0.1)), names_in_query=True),
    Variant(name="+ names out of the query", blend=replace(_BARE, neighbours=(0.3, 0.1))),
    Variant(name="+ the session's words", blend=replace(_BARE, neighbours=(0.3, 0.1), session=0.2)),
    Variant(name="+ who is named (all, as used)", blend=BLEND),
    Variant(name="all, the date embedded, too", blend=BLEND, dated_text=True),
)


@dataclass(frozen=True, kw_only=True)
class Conversation:
    index: ResidentIndex
    ids: Mapping[MemoryId, str]  # of the turns, as the questions name them


def conversations(file: Path, embedder: MiniLM, analyzer: Analyzer, *, dated_text: bool) -> dict[str, Conversation]:
    """One index a conversation."""
    groups: defaultdict[str, list[tuple[Entry, str, str]]] = defaultdict(list)
    for item in read(file, Defaults(agent_id=AGENT)):
        if isinstance(item, WriteItem):
            entry, content = _entry(item.body)
            text = embedded_text(content, speaker=entry.speaker)
            groups[item.body["user_id"]].append((entry, text, item.body["metadata"]["dia_id"]))
    found = {}
    for user, turns in groups.items():
        texts = [entry.text if dated_text else text for entry, text, _ in turns]
        index = ResidentIndex(dimension=embedder.dimension, analyzer=analyzer)
        index.put([entry for entry, _, _ in turns], embedder.embed(texts).astype(np.float16))
        found[user] = Conversation(index=index, ids={entry.id: turn for entry, _, turn in turns})
    return found


def _entry(body: Mapping[str, str]) -> tuple[Entry, str]:
    moment = datetime.fromisoformat(body["occurred_at"])
    content, speaker = body["content"], body["speaker"]
    return Entry(
        id=MemoryId(uuid.uuid4()),
        tier=Tier.EPISODIC,
        text=episode_text(content, speaker=speaker, occurred_at=moment),
        words=content_hash(content),
        created_at=moment,
        importance=0.5,
        session_id=SessionId(body["session_id"]),
        speaker=speaker,
    ), content


def run(file: Path) -> dict[str, dict[str, dict[str, float]]]:
    embedder, analyzer, asked = MiniLM(threads=2), Analyzer(language("english")), list(questions(file))
    indexes = {
        dated: conversations(file, embedder, analyzer, dated_text=dated)
        for dated in sorted({variant.dated_text for variant in VARIANTS})
    }
    read_as = {
        whole: [_read(question, indexes[False], analyzer, whole=whole) for question in asked] for whole in (True, False)
    }
    vectors = {whole: embedder.embed([each.text for each in found]) for whole, found in read_as.items()}
    return {
        variant.name: _measure(variant, asked, indexes[variant.dated_text], read_as, vectors) for variant in VARIANTS
    }


def _read(question: Question, found: Mapping[str, Conversation], analyzer: Analyzer, *, whole: bool) -> Asked:
    if whole:
        terms = Counter(map(int, analyzer.ids(question.text)))
        return Asked(text=question.text, terms=terms, speakers=frozenset())
    return read_question(question.text, [found[question.sample].index], analyzer)


def _measure(
    variant: Variant,
    asked: Sequence[Question],
    found: Mapping[str, Conversation],
    read_as: Mapping[bool, Sequence[Asked]],
    vectors: Mapping[bool, Vectors],
) -> dict[str, dict[str, float]]:
    rows = []
    for place, question in enumerate(asked):
        conversation = found[question.sample]
        reading = read_as[variant.names_in_query][place]
        query = Query(
            vector=vectors[variant.names_in_query][place],
            terms=reading.terms,
            speakers=reading.speakers,
            now=datetime.now(UTC),
            weights=RELEVANCE_ALONE,
            limit=20,
            blend=variant.blend,
        )
        winners = search([conversation.index], query)
        rows.append(measure([conversation.ids[winner.id] for winner in winners], question))
    others = [row for question, row in zip(asked, rows, strict=True) if question.category != ADVERSARIAL]
    return {"all": average(rows), "without_adversarial": average(others)}


def table(results: Mapping[str, Mapping[str, Mapping[str, float]]]) -> Table:
    shown = Table(title="Relevance alone; each row adds to the one above", title_justify="left")
    for column in ("evidence", *METRICS, "recall@10 without adversarial"):
        shown.add_column(column)
    for name, found in results.items():
        figures = [found["all"][metric] for metric in METRICS] + [found["without_adversarial"]["recall@10"]]
        shown.add_row(name, *(f"{figure:.3f}" for figure in figures))
    return shown


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="a LoCoMo file")
    parser.add_argument("--json", type=Path, help="write the figures here")
    arguments = parser.parse_args()
    results = run(arguments.data)
    Console().print(table(results))
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=2))


if __name__ == "__main__":
    main()
