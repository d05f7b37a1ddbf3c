"""Does a new statement replace an old one when it should, and only then?

``python -m benchmarks.contradictions [--data FILE] [--model-url URL --model NAME] [--json OUT]``

Each line of the data is a pair of statements of one person, a month apart, its kind and what should become of the
first: ``replaced``, ``kept``, or ``same`` (the second says nothing new). Facts are taken from both by the built-in
rules, or by a model given by URL, and judged as the store does. A pair from which no facts come is counted as kept.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import uuid4

from rich.console import Console
from rich.table import Table

from configs.settings import ModelSettings
from memory.contradiction import Statement, Verdict, judge
from memory.ports import Classifier
from memory.records import AgentId, FactDraft, Interaction, MemoryId, SessionId, TenantId, UserId
from memory.rules import RuleClassifier, is_correction
from stores.models.chat import ChatModel
from stores.models.classifier import ModelClassifier
from stores.models.prompts import load_prompt
from stores.models.tokens import BpeCounter

DATA = Path(__file__).parent.parent / "tests" / "data" / "contradictions.jsonl"
OUTCOMES = ("replaced", "kept", "same")
FIRST = datetime(2026, 3, 1, 12, tzinfo=UTC)
LATER = FIRST + timedelta(days=30)


@dataclass(frozen=True)
class Pair:
    kind: str
    first: str
    second: str
    expect: str


def load(file: Path) -> list[Pair]:
    return [Pair(**json.loads(line)) for line in file.read_text("utf-8").splitlines() if line.strip()]


async def outcomes(pairs: Sequence[Pair], classifier: Classifier) -> list[str]:
    """What becomes of each pair's first statement."""
    said = [_said(text, at) for pair in pairs for text, at in ((pair.first, FIRST), (pair.second, LATER))]
    found = [
        [_statement(draft, each) for draft in classified.facts]
        for each, classified in zip(said, await classifier.classify(said), strict=True)
    ]
    return [
        _outcome(old, new, correction=is_correction(pair.second))
        for pair, old, new in zip(pairs, found[::2], found[1::2], strict=True)
    ]


def _outcome(old: Sequence[Statement], new: Sequence[Statement], *, correction: bool) -> str:
    verdicts = {judge(later, earlier, correction=correction) for later in new for earlier in old}
    if Verdict.SUPERSEDES in verdicts:
        return "replaced"
    return "same" if Verdict.SAME in verdicts else "kept"


def _said(text: str, at: datetime) -> Interaction:
    return Interaction(
        id=MemoryId(uuid4()),
        tenant_id=TenantId("bench"),
        agent_id=AgentId("bench"),
        user_id=UserId("ann"),
        session_id=SessionId("s"),
        content=text,
        accepted_at=at,
        occurred_at=at,
        speaker="Ann",
    )


def _statement(draft: FactDraft, source: Interaction) -> Statement:
    return Statement(
        subject=draft.subject or "",
        predicate=draft.predicate or "",
        object=draft.object or "",
        confidence=draft.confidence,
        valid_from=draft.valid_from or source.occurred_at,
    )


def summary(pairs: Sequence[Pair], found: Sequence[str]) -> dict[str, dict[str, float]]:
    """Per kind: pairs, how many ended as expected, and precision and recall of replacing over all kinds."""
    by_kind: Mapping[str, Counter[str]] = defaultdict(Counter)
    for pair, outcome in zip(pairs, found, strict=True):
        by_kind[pair.kind][outcome] += 1
        by_kind[pair.kind]["as expected"] += outcome == pair.expect
    rows = {
        kind: {name: float(counts[name]) for name in (*OUTCOMES, "as expected")} for kind, counts in by_kind.items()
    }
    expected = sum(pair.expect == "replaced" for pair in pairs)
    replaced = sum(outcome == "replaced" for outcome in found)
    right = sum(pair.expect == outcome == "replaced" for pair, outcome in zip(pairs, found, strict=True))
    return rows | {"replacing": {"precision": right / max(1, replaced), "recall": right / max(1, expected)}}


def table(pairs: Sequence[Pair], found: Mapping[str, Mapping[str, float]], backend: str) -> Table:
    whole = found["replacing"]
    title = f"{backend}: replacing has precision {whole['precision']:.3f}, recall {whole['recall']:.3f}"
    shown = Table(title=title, title_justify="left")
    for column in ("kind", "expected", "pairs", *OUTCOMES, "as expected"):
        shown.add_column(column)
    expected = {pair.kind: pair.expect for pair in pairs}
    for kind, wanted in expected.items():
        row = found[kind]
        count = sum(row[name] for name in OUTCOMES)
        shown.add_row(kind, wanted, f"{count:.0f}", *(f"{row[name]:.0f}" for name in (*OUTCOMES, "as expected")))
    return shown


async def measured(pairs: Sequence[Pair], url: str | None, model: str | None) -> list[str]:
    if url is None or model is None:
        return await outcomes(pairs, RuleClassifier())
    settings = ModelSettings(url=url, classifier=model)
    chat = ChatModel(settings, model, count=lambda _, outcome: None)
    try:
        prompt = load_prompt("classify")
        return await outcomes(pairs, ModelClassifier(chat, prompt, RuleClassifier(), BpeCounter(), settings))
    finally:
        await chat.aclose()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=DATA, help="pairs of your own")
    parser.add_argument("--model-url", help="an OpenAI-compatible URL, such as http://127.0.0.1:8100/v1")
    parser.add_argument("--model", help="the model's name there")
    parser.add_argument("--json", type=Path, help="write the figures here")
    arguments = parser.parse_args()
    if (arguments.model_url is None) != (arguments.model is None):
        parser.error("--model-url and --model go together")
    pairs = load(arguments.data)
    found = summary(pairs, asyncio.run(measured(pairs, arguments.model_url, arguments.model)))
    Console(width=120).print(table(pairs, found, arguments.model or "built-in rules"))
    if arguments.json:
        arguments.json.write_text(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
