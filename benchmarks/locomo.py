"""Retrieval quality on LoCoMo conversations, through the public API with default settings.

``python -m benchmarks.locomo --data locomo10.json [--json OUT] [--url URL --key KEY]``

Each turn is one memory, a question's relevant set is its evidence, and every metric is an average over questions.
The data is LoCoMo (Maharana et al., 2024; snap-research/locomo on GitHub, CC BY-NC 4.0); it is not part of this
project.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import httpx
from rich.console import Console
from rich.table import Table

from benchmarks.instance import Instance, instance, machine
from benchmarks.metrics import ndcg_at, recall_at, reciprocal_rank
from pipelines.conversations import Defaults, WriteItem, read

AGENT = "locomo"
ADVERSARIAL = 5
METRICS = ("recall@5", "recall@10", "recall@20", "ndcg@10", "mrr")
BATCH = 100
SETTLE_TIMEOUT_S = 1_800


@dataclass(frozen=True)
class Question:
    sample: str
    text: str
    category: int
    evidence: frozenset[str]


def questions(file: Path) -> Iterator[Question]:
    """Every question that has evidence; ids with typos are left out."""
    for sample in json.loads(file.read_text("utf-8")):
        turns = {turn["dia_id"] for name, value in sample["conversation"].items() for turn in _turns(name, value)}
        for found in sample["qa"]:
            named = re.findall(r"D\d+:\d+", " ".join(map(str, found.get("evidence") or [])))
            evidence = frozenset(named) & turns
            if evidence:
                yield Question(sample["sample_id"], found["question"], found["category"], evidence)


def _turns(name: str, value: Any) -> list[dict[str, Any]]:
    return value if re.fullmatch(r"session_\d+", name) else []


def remember(api: httpx.Client, file: Path) -> int:
    """Import every turn and wait until all are stored."""
    read_items = read(file, Defaults(agent_id=AGENT, user_id=None, infer=None))
    bodies = [dict(item.body) for item in read_items if isinstance(item, WriteItem)]
    store(api, bodies)
    return len(bodies)


def store(api: httpx.Client, bodies: Sequence[Mapping[str, Any]]) -> None:
    """Send writes in batches and wait until all are stored."""
    for start in range(0, len(bodies), BATCH):
        body = {"items": bodies[start : start + BATCH]}
        answer = api.post(f"/v1/agents/{AGENT}/memories/batch", json=body).raise_for_status().json()
        if refused := [item["problem"] for item in answer["items"] if item["problem"]]:
            sys.exit(f"the API refused a turn: {refused[0]}")
    deadline = time.monotonic() + SETTLE_TIMEOUT_S
    while api.get("/v1/ledger").raise_for_status().json()["pending"]:
        if time.monotonic() > deadline:
            sys.exit("the turns were not stored in time")
        time.sleep(0.2)


def ask(api: httpx.Client, question: Question, weights: Mapping[str, float] | None, top_k: int = 20) -> list[str]:
    """Ids of the turns found, best first."""
    body: dict[str, Any] = {"query": question.text, "user_id": question.sample, "top_k": top_k, "tiers": ["episodic"]}
    if weights is not None:
        body["weights"] = dict(weights)
    answer = api.post(f"/v1/agents/{AGENT}/memories/search", json=body).raise_for_status().json()
    return [hit["memory"]["metadata"]["dia_id"] for hit in answer["hits"]]


def measure(ranked: Sequence[str], question: Question) -> dict[str, float]:
    relevant = question.evidence
    recalls = {f"recall@{k}": recall_at(k, ranked, relevant) for k in (5, 10, 20)}
    return recalls | {"ndcg@10": ndcg_at(10, ranked, relevant), "mrr": reciprocal_rank(ranked, relevant)}


def average(rows: Sequence[Mapping[str, float]]) -> dict[str, float]:
    return {name: round(sum(row[name] for row in rows) / len(rows), 4) for name in METRICS} if rows else {}


def summarise(asked: Sequence[Question], rows: Sequence[Mapping[str, float]]) -> dict[str, Any]:
    """Averages over all questions, without adversarial ones, and by category."""
    pairs = sorted(zip(asked, rows, strict=True), key=lambda pair: pair[0].category)
    groups = {key: [row for _, row in group] for key, group in groupby(pairs, key=lambda pair: pair[0].category)}
    return {
        "all": average(rows),
        "without_adversarial": average([row for found, row in pairs if found.category != ADVERSARIAL]),
        "by_category": {str(category): average(group) for category, group in groups.items()},
    }


def run(target: Instance, file: Path) -> dict[str, Any]:
    with httpx.Client(base_url=target.url, headers=target.headers, timeout=60) as api:
        started = time.perf_counter()
        turns = remember(api, file)
        stored_s = time.perf_counter() - started
        asked = list(questions(file))
        relevance_only = {"relevance": 1.0, "recency": 0.0, "importance": 0.0, "frequency": 0.0, "type_bonus": 0.0}
        results: dict[str, Any] = {"turns": turns, "questions": len(asked), "import_s": round(stored_s, 1)}
        for name, weights in (("default", None), ("relevance_only", relevance_only)):
            with ThreadPoolExecutor(4) as pool:
                ranked = list(pool.map(lambda question, w=weights: ask(api, question, w), asked))
            results[name] = summarise(asked, [measure(r, q) for r, q in zip(ranked, asked, strict=True)])
    # The figures of the default settings stand at the top level, too.
    results |= results["default"] | {"machine": machine()}
    return results


def table(results: Mapping[str, Any]) -> Table:
    shown = Table(title=f"LoCoMo: {results['questions']} questions, {results['turns']} turns", title_justify="left")
    for column in ("questions", *METRICS):
        shown.add_column(column)
    rows = {"all": results["all"], "without adversarial": results["without_adversarial"]}
    rows |= {f"category {name}": found for name, found in results["by_category"].items()}
    rows |= {"all, relevance alone": results["relevance_only"]["all"]}
    for name, found in rows.items():
        shown.add_row(name, *(f"{found[metric]:.3f}" for metric in METRICS))
    return shown


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="a LoCoMo file")
    parser.add_argument("--json", type=Path, help="write the figures here")
    parser.add_argument("--url", help="a running instance; left out, one is started")
    parser.add_argument("--key", help="its API key")
    arguments = parser.parse_args()
    with instance(arguments.url, arguments.key) as target:
        results = run(target, arguments.data)
    Console().print(table(results))
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=2))


if __name__ == "__main__":
    main()
