"""Latency through HTTP, beside the specification's targets.

``python -m benchmarks.latency [--json OUT] [--plot PNG] [--url URL --key KEY]``

Each operation runs with 1 and with 16 clients; every request counts, from its sending to its last byte.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

import httpx
from rich.console import Console
from rich.table import Table

from benchmarks.instance import Instance, instance, machine

AGENTS = 16
MEMORIES = 50  # of each agent, before anything is measured
#: Specification, "Non-Functional Requirements", in milliseconds.
TARGETS_MS = {"working-memory write": 50, "persistent write": 200, "search top-20": 100, "context": 300}
SENTENCES = (
    "We talked about the harbour and the new ferry to the islands.",
    "I prefer green tea in the morning and coffee after lunch.",
    "The deployment failed because a migration ran twice.",
    "My sister Maria starts her course in Bergen next week.",
    "The invoice 4021 was paid late and the customer complained.",
)

Call = Callable[[httpx.AsyncClient, int], Awaitable[httpx.Response]]


def _memories(number: int) -> str:
    return f"/v1/agents/bench-{number % AGENTS}/memories"


def _body(number: int, **extra: Any) -> dict[str, Any]:
    content = f"{SENTENCES[number % len(SENTENCES)]} (note {number})"
    return {"content": content, "user_id": "ann", "session_id": f"s{number % 8}", **extra}


async def _write(api: httpx.AsyncClient, number: int) -> httpx.Response:
    return await api.post(_memories(number), json=_body(number))


async def _persist(api: httpx.AsyncClient, number: int) -> httpx.Response:
    return await api.post(_memories(number), json=_body(number, wait="persistent"))


def _question(number: int) -> dict[str, Any]:
    # A number in it keeps the query out of the cache of query embeddings.
    return {"query": f"What was said about the ferry in note {number}?", "user_id": "ann"}


async def _search(api: httpx.AsyncClient, number: int) -> httpx.Response:
    return await api.post(f"{_memories(number)}/search", json=_question(number) | {"top_k": 20})


async def _context(api: httpx.AsyncClient, number: int) -> httpx.Response:
    body = _question(number) | {"session_id": f"s{number % 8}", "window": 16_000}
    return await api.post(f"/v1/agents/bench-{number % AGENTS}/context", json=body)


OPERATIONS: dict[str, Call] = {
    "working-memory write": _write,
    "persistent write": _persist,
    "search top-20": _search,
    "context": _context,
}


async def _drained(api: httpx.AsyncClient) -> None:
    """Writes of one measurement must not load the machine during the next."""
    while (await api.get("/v1/ledger")).raise_for_status().json()["pending"]:
        await asyncio.sleep(0.1)


async def _measure(api: httpx.AsyncClient, call: Call, *, clients: int, requests: int, first: int) -> list[float]:
    """Milliseconds of each request; ``clients`` of them are under way at any time."""
    numbers = iter(range(first, first + requests))
    times: list[float] = []

    async def client() -> None:
        for number in numbers:
            started = perf_counter()
            (await call(api, number)).raise_for_status()
            times.append((perf_counter() - started) * 1000)

    await asyncio.gather(*(client() for _ in range(clients)))
    return times


def percentiles(times: Sequence[float]) -> dict[str, float]:
    cuts = statistics.quantiles(times, n=100, method="inclusive")
    return {"p50": round(cuts[49], 2), "p95": round(cuts[94], 2), "p99": round(cuts[98], 2)}


async def run(target: Instance, requests: int) -> dict[str, Any]:
    """Figures of all operations, by name and number of clients."""
    results: dict[str, Any] = {}
    async with httpx.AsyncClient(base_url=target.url, headers=target.headers, timeout=60) as api:
        items = [_body(number) for number in range(MEMORIES)]
        for number in range(AGENTS):
            (await api.post(f"{_memories(number)}/batch", json={"items": items})).raise_for_status()
        await _drained(api)
        first = MEMORIES
        for name, call in OPERATIONS.items():
            for clients in (1, 16):
                await _measure(api, call, clients=clients, requests=2 * AGENTS, first=first)  # warm up
                started = perf_counter()
                times = await _measure(api, call, clients=clients, requests=requests, first=first + 2 * AGENTS)
                rate = requests / (perf_counter() - started)
                figures = percentiles(times) | {"requests_per_s": round(rate, 1), "target_ms": TARGETS_MS[name]}
                results.setdefault(name, {})[str(clients)] = figures
                first += requests + 2 * AGENTS
                await _drained(api)
    return {"operations": results, "requests": requests, "machine": machine()}


def table(results: dict[str, Any]) -> Table:
    shown = Table(title=f"Milliseconds of {results['requests']} requests each", title_justify="left")
    for column in ("operation", "clients", "p50", "p95", "p99", "requests/s", "target"):
        shown.add_column(column)
    for name, by_clients in results["operations"].items():
        for clients, found in by_clients.items():
            figures = (f"{found[key]:.1f}" for key in ("p50", "p95", "p99", "requests_per_s"))
            shown.add_row(name, clients, *figures, f"< {found['target_ms']}")
    return shown


def plot(results: dict[str, Any], file: Path) -> None:
    """Bars of p50 and p95 with the target as a line, for each operation."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    names = list(results["operations"])
    figure, axes = pyplot.subplots(1, len(names), figsize=(3.2 * len(names), 3.6), layout="constrained")
    for axis, name in zip(axes, names, strict=True):
        found = results["operations"][name]
        for offset, quantile in enumerate(("p50", "p95")):
            heights = [found[clients][quantile] for clients in found]
            axis.bar([place + 0.4 * offset for place in range(len(found))], heights, width=0.38, label=quantile)
        axis.axhline(TARGETS_MS[name], color="black", linestyle="--", linewidth=1, label="target (p95)")
        axis.set_xticks([place + 0.2 for place in range(len(found))], [f"{clients} clients" for clients in found])
        axis.set_title(name)
        axis.set_ylabel("ms")
    axes[0].legend()
    figure.savefig(file, dpi=130)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="write the figures here")
    parser.add_argument("--plot", type=Path, help="write a PNG here")
    parser.add_argument("--requests", type=int, default=400, help="requests per operation and number of clients")
    parser.add_argument("--url", help="a running instance; left out, one is started")
    parser.add_argument("--key", help="its API key")
    arguments = parser.parse_args()
    with instance(arguments.url, arguments.key) as target:
        results = asyncio.run(run(target, arguments.requests))
    Console().print(table(results))
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=2))
    if arguments.plot:
        plot(results, arguments.plot)


if __name__ == "__main__":
    main()
