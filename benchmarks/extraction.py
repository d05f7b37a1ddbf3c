"""How many answers survive extraction: are they in the facts that are found, without the turns they came from?

``python -m benchmarks.extraction --data locomo10.json [--model-url URL --model NAME] [--conversations N] [--json OUT]``

Every turn is remembered, the configured classifier takes facts from it, and each question is asked of the facts alone.
An answer counts by the share of its telling words (stems; dates and numbers whole) that are in the facts found.
Without ``--model-url`` the built-in rules are measured. A row with the turns themselves shows what this measure gives
at most. The data is LoCoMo (Maharana et al., 2024; snap-research/locomo on GitHub, CC BY-NC 4.0); it is not part of
this project.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from rich.console import Console
from rich.table import Table

from benchmarks.instance import Instance, instance, machine
from benchmarks.locomo import ADVERSARIAL, AGENT, remember
from memory.terms import Analyzer
from stores.models.stemming import language

DEPTHS = (5, 10, 20)
SETTLE_TIMEOUT_S = 24 * 3_600
TIERS = {"facts": ["semantic"], "turns": ["episodic"]}


@dataclass(frozen=True)
class Question:
    sample: str
    text: str
    answer: str
    category: int


def questions(samples: Sequence[Mapping[str, Any]]) -> Iterator[Question]:
    """Those that have an answer; an adversarial one has none."""
    for sample in samples:
        for found in sample["qa"]:
            if found["category"] != ADVERSARIAL and str(found.get("answer", "")).strip():
                yield Question(sample["sample_id"], found["question"], str(found["answer"]), found["category"])


def ask(api: httpx.Client, question: Question, tiers: Sequence[str]) -> list[str]:
    """The texts found, best first."""
    body = {"query": question.text, "user_id": question.sample, "top_k": max(DEPTHS), "tiers": tiers}
    answer = api.post(f"/v1/agents/{AGENT}/memories/search", json=body).raise_for_status().json()
    return [hit["memory"]["content"] for hit in answer["hits"]]


def coverage(answer: str, texts: Sequence[str], analyzer: Analyzer) -> float:
    """Share of the answer's terms that are in the texts; of its characters' runs, where it has no terms."""
    wanted = set(analyzer.terms(answer))
    if not wanted:
        return float(any(answer.casefold() in text.casefold() for text in texts))
    return len(wanted & {term for text in texts for term in analyzer.terms(text)}) / len(wanted)


def measure(api: httpx.Client, asked: Sequence[Question], tiers: Sequence[str]) -> dict[str, Any]:
    analyzer = Analyzer(language("english"))
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda question: ask(api, question, tiers), asked))
    shares = {
        depth: [
            coverage(question.answer, texts[:depth], analyzer) for question, texts in zip(asked, found, strict=True)
        ]
        for depth in DEPTHS
    }
    return {
        f"top {depth}": {"words": sum(each) / len(each), "whole": sum(share == 1.0 for share in each) / len(each)}
        for depth, each in shares.items()
    }


def await_extraction(api: httpx.Client) -> None:
    deadline = time.monotonic() + SETTLE_TIMEOUT_S
    while pending(api):
        if time.monotonic() > deadline:
            sys.exit("the facts were not extracted in time")
        time.sleep(1.0)


def pending(api: httpx.Client) -> float:
    lines = api.get("/metrics").raise_for_status().text.splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith("mnemoray_extraction_pending "))


def run(target: Instance, file: Path, samples: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    with httpx.Client(base_url=target.url, headers=target.headers, timeout=60) as api:
        started = time.perf_counter()
        turns = remember(api, file)
        await_extraction(api)
        seconds = time.perf_counter() - started
        asked = list(questions(samples))
        rows = {name: measure(api, asked, tiers) for name, tiers in TIERS.items()}
    return {"turns": turns, "questions": len(asked), "read_s": round(seconds, 1), "found": rows, "machine": machine()}


def table(results: Mapping[str, Any], backend: str) -> Table:
    title = f"{backend}: {results['questions']} answers, {results['turns']} turns read in {results['read_s']:.0f} s"
    shown = Table(title=title, title_justify="left")
    shown.add_column("asked of")
    for depth in DEPTHS:
        shown.add_column(f"top {depth}: words")
        shown.add_column("whole answers")
    for name, found in results["found"].items():
        shown.add_row(name, *(f"{found[f'top {depth}'][kind]:.3f}" for depth in DEPTHS for kind in ("words", "whole")))
    return shown


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="a LoCoMo file")
    parser.add_argument("--model-url", help="an OpenAI-compatible URL, such as http://127.0.0.1:8100/v1")
    parser.add_argument("--model", help="the model's name there")
    parser.add_argument("--conversations", type=int, help="only the first so many")
    parser.add_argument("--json", type=Path, help="write the figures here")
    arguments = parser.parse_args()
    if (arguments.model_url is None) != (arguments.model is None):
        parser.error("--model-url and --model go together")
    if arguments.model_url:
        os.environ |= {"MNEMORAY_MODELS__URL": arguments.model_url, "MNEMORAY_MODELS__CLASSIFIER": arguments.model}
    samples = json.loads(arguments.data.read_text("utf-8"))[: arguments.conversations]
    with tempfile.NamedTemporaryFile("w", suffix=".json", encoding="utf-8") as chosen:
        json.dump(samples, chosen)
        chosen.flush()
        with instance(None, None) as target:
            results = run(target, Path(chosen.name), samples)
    Console(width=120).print(table(results, arguments.model or "built-in rules"))
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=2))


if __name__ == "__main__":
    main()
