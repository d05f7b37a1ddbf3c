"""Throughput and latency of served models, through an OpenAI-compatible URL.

``python -m benchmarks.models --url http://127.0.0.1:8790/v1 --model NAME [--tokens N] [--requests N] [--json OUT]``

Every answer has the same length (the engine is told to ignore the end of text), every prompt is new, and every request
counts, from its sending to its last byte.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter

import httpx
from rich.console import Console
from rich.table import Table

from benchmarks.instance import machine

CONCURRENCY = (1, 4, 16)
TIMEOUT_S = 600.0
PROMPT = "Note {number}: Ann moved from Bergen to Oslo in May and now works at the harbour. Tell what happened."


@dataclass(frozen=True, kw_only=True)
class Level:
    """One number of concurrent requests."""

    concurrent: int
    requests: int
    p50_s: float
    p95_s: float
    requests_per_s: float
    tokens_per_s: float  # of the answers


class Endpoint:
    """The model that is measured."""

    def __init__(self, http: httpx.AsyncClient, *, url: str, model: str, tokens: int) -> None:
        self._http = http
        self._url = f"{url.rstrip('/')}/chat/completions"
        self._body = {"model": model, "max_tokens": tokens, "temperature": 0, "ignore_eos": True}

    async def ask(self, number: int) -> tuple[float, int]:
        """Seconds and tokens of one answer."""
        message = {"role": "user", "content": PROMPT.format(number=number)}
        began = perf_counter()
        answer = await self._http.post(self._url, json=self._body | {"messages": [message]})
        took = perf_counter() - began
        answer.raise_for_status()
        return took, int(answer.json()["usage"]["completion_tokens"])

    async def level(self, concurrent: int, requests: int) -> Level:
        """``concurrent`` clients, each with one request at a time, until all are answered."""
        numbers = iter(range(requests))
        found: list[tuple[float, int]] = []

        async def work() -> None:
            for number in numbers:
                found.append(await self.ask(1000 * concurrent + number))

        began = perf_counter()
        await asyncio.gather(*(work() for _ in range(concurrent)))
        took = perf_counter() - began
        seconds = sorted(second for second, _ in found)
        return Level(
            concurrent=concurrent,
            requests=requests,
            p50_s=statistics.median(seconds),
            p95_s=seconds[min(len(seconds) - 1, round(0.95 * len(seconds)))],
            requests_per_s=len(found) / took,
            tokens_per_s=sum(tokens for _, tokens in found) / took,
        )


async def measure(url: str, model: str, *, key: str, tokens: int, requests: int) -> list[Level]:
    limits = httpx.Limits(max_connections=max(CONCURRENCY))
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    async with httpx.AsyncClient(timeout=TIMEOUT_S, limits=limits, headers=headers) as http:
        endpoint = Endpoint(http, url=url, model=model, tokens=tokens)
        await endpoint.ask(0)
        return [await endpoint.level(count, max(requests, 2 * count)) for count in CONCURRENCY]


def table(levels: Sequence[Level], title: str) -> Table:
    found = Table(title=title)
    for name in ("concurrent", "requests", "p50 s", "p95 s", "requests/s", "tokens/s"):
        found.add_column(name, justify="right")
    for level in levels:
        figures = (level.p50_s, level.p95_s, level.requests_per_s, level.tokens_per_s)
        found.add_row(str(level.concurrent), str(level.requests), *(f"{figure:.2f}" for figure in figures))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", required=True, help="with /v1")
    parser.add_argument("--model", required=True)
    parser.add_argument("--key", default="", help="API key, where one is needed")
    parser.add_argument("--tokens", type=int, default=64, help="of every answer")
    parser.add_argument("--requests", type=int, default=12, help="of each level, at least two a client")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    levels = asyncio.run(
        measure(options.url, options.model, key=options.key, tokens=options.tokens, requests=options.requests)
    )
    Console().print(table(levels, f"{options.model}, {options.tokens} tokens an answer"))
    if options.json:
        found = {"machine": machine(), "model": options.model, "tokens": options.tokens}
        options.json.write_text(json.dumps(found | {"levels": [asdict(level) for level in levels]}, indent=2))


if __name__ == "__main__":
    main()
