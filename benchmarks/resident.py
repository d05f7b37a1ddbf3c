"""Search latency by the size of an agent, where the time goes, and how far it is from the floor.

``python -m benchmarks.resident [--json OUT] [--sizes 1000,10000,100000] [--replicas N]``

With several replicas each answers ``/metrics`` for itself, so stages and bytes are those of one of them.

Fills an instance of its own with agents of several sizes, straight into its tables, and asks through HTTP. Every query
is new, so that it is embedded. The floor of a search is what cannot be saved: embedding the query, and reading the
vectors once at the memory's measured bandwidth.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from time import perf_counter
from typing import Any

import httpx
import numpy as np
import psycopg
import uuid_utils
from numpy.random import Generator
from pgvector.psycopg import register_vector_async
from rich.console import Console
from rich.table import Table

from benchmarks.instance import Instance, machine, started
from benchmarks.latency import percentiles
from cluster.paths import DataDir
from cluster.postgres_server import PostgresServer
from cluster.supervisor import TENANT
from memory.normalise import content_hash
from memory.ports import Vectors
from stores.models.minilm import MODEL, MiniLM

USER = "ann"
SMALL = "small"  # the agent that is asked beside a busy one
SIZES = (1_000, 10_000, 100_000)
AGENTS = 200  # of the throughput measurement
AGENT_SIZE = 100
CLIENTS = 16
SESSION = 40  # turns
DAYS = 60  # over which an agent's memories are spread
SUBJECTS = [
    "ferry",
    "harbour",
    "invoice",
    "deployment",
    "sister",
    "garden",
    "violin",
    "budget",
    "parser",
    "doctor",
    "ticket",
    "recipe",
    "bridge",
    "podcast",
]
VERBS = "fixed lost planned painted reviewed missed bought forgot promised finished cancelled".split()  # noqa: SIM905
PLACES = "Bergen Oslo Lisbon Kyoto Quito Accra Perth Turin Galway Hanoi Tartu Bilbao".split()  # noqa: SIM905
SPEAKERS = ("Ann", "Bob", "Chris")
COLUMNS = (
    "id, tenant_id, agent_id, user_id, session_id, event_type, speaker, content, content_hash, importance, "
    "embedding, embedding_model, retention_tier, revision, created_at"
)
TYPES = [
    *("uuid", "text", "text", "text", "text", "text", "text", "text", "text", "float4", "vector", "text", "text"),
    *("int8", "timestamptz"),
]


def sentence(rng: Generator) -> str:
    subject, verb, place = (words[rng.integers(len(words))] for words in (SUBJECTS, VERBS, PLACES))
    return f"I {verb} the {subject} in {place} with ticket T-{rng.integers(10_000)} and told everybody about it."


def texts_and_vectors(rng: Generator, count: int, embedder: MiniLM) -> tuple[list[str], Vectors]:
    """Real sentences' vectors, jittered: embedding them all would take the benchmark's whole time."""
    texts = [sentence(rng) for _ in range(count)]
    known = embedder.embed(texts[: min(count, 500)])
    noise = rng.standard_normal((count, known.shape[1]), dtype=np.float32) * np.float32(0.6 / known.shape[1] ** 0.5)
    found = known[np.arange(count) % len(known)] + noise
    return texts, np.asarray(found / np.linalg.norm(found, axis=1, keepdims=True), dtype=np.float32)


async def fill(dsn: str, sizes: Mapping[str, int], embedder: MiniLM) -> None:
    """Agents with so many memories each."""
    rng = np.random.default_rng(1)
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as connection:
        await register_vector_async(connection)
        await connection.execute("SELECT set_config('mnemoray.tenant', %s, false)", [TENANT])
        await connection.execute("SET maintenance_work_mem = '1GB'")
        now = datetime.now(UTC)
        for day in range(DAYS + 1):
            await connection.execute("SELECT ensure_episodic_partition(%s)", [now - timedelta(days=day)])
        await connection.execute("DROP INDEX idx_episodic_embedding")
        await connection.execute(f"CREATE TEMP TABLE loading AS SELECT {COLUMNS} FROM episodic_memory")  # noqa: S608
        for agent, size in sizes.items():
            await _fill_agent(connection, agent, texts_and_vectors(rng, size, embedder), now)
        await connection.execute(
            "CREATE INDEX idx_episodic_embedding ON episodic_memory USING hnsw (embedding vector_cosine_ops) "
            "WITH (m = 16, ef_construction = 200)"
        )
        await connection.execute("ANALYZE")


async def _fill_agent(
    connection: psycopg.AsyncConnection[Any], agent: str, memories: tuple[list[str], Vectors], now: datetime
) -> None:
    texts, vectors = memories
    await connection.execute(
        "INSERT INTO agents (tenant_id, agent_id, partition, revision) VALUES (%s, %s, 0, 1)", [TENANT, agent]
    )
    await connection.execute(
        "INSERT INTO sessions (tenant_id, agent_id, user_id, session_id, episodes) VALUES (%s, %s, %s, 's', %s)",
        [TENANT, agent, USER, len(texts)],
    )
    async with connection.cursor().copy(f"COPY loading ({COLUMNS}) FROM STDIN (FORMAT BINARY)") as copy:
        copy.set_types(TYPES)
        for row in _rows(agent, texts, vectors, now):
            await copy.write_row(row)
    await connection.execute(f"INSERT INTO episodic_memory ({COLUMNS}) SELECT {COLUMNS} FROM loading")  # noqa: S608
    await connection.execute("TRUNCATE loading")


def _rows(agent: str, texts: Sequence[str], vectors: Vectors, now: datetime) -> Iterator[tuple[Any, ...]]:
    step = timedelta(days=DAYS) / len(texts)
    for number, (text, vector) in enumerate(zip(texts, vectors, strict=True)):
        yield (
            uuid.UUID(bytes=uuid_utils.uuid7().bytes),
            TENANT,
            agent,
            USER,
            f"s{number // SESSION}",
            "conversation",
            SPEAKERS[number % len(SPEAKERS)],
            text,
            content_hash(text),
            0.45,
            vector,
            MODEL,
            "permanent",
            1,
            now - step * (len(texts) - number),
        )


class Asker:
    """Asks an instance."""

    def __init__(self, api: httpx.AsyncClient) -> None:
        self._api = api
        self._rng = np.random.default_rng(2)

    async def ask(self, agent: str) -> tuple[float, bool]:
        """Milliseconds of one new question, and whether a resident index answered it."""
        query = f"Who {VERBS[self._rng.integers(len(VERBS))]} something near number {self._rng.integers(10**9)}?"
        body = {"query": query, "user_id": USER, "top_k": 20}
        started = perf_counter()
        answer = await self._api.post(f"/v1/agents/{agent}/memories/search", json=body)
        elapsed = (perf_counter() - started) * 1000
        return elapsed, answer.raise_for_status().json()["resident"]

    async def several(self, agent: str, count: int) -> list[float]:
        return [(await self.ask(agent))[0] for _ in range(count)]

    async def metrics(self) -> dict[str, float]:
        text = (await self._api.get("/metrics")).raise_for_status().text
        return {name: float(value) for name, value in re.findall(r"^(mnemoray_\S+) (\S+)$", text, re.MULTILINE)}

    async def become_resident(self, agent: str) -> dict[str, Any]:
        """Ask until the agent is resident; the answers on the way are cold ones."""
        started, cold, resident = perf_counter(), [], False
        while not resident:
            elapsed, resident = await self.ask(agent)
            cold += [] if resident else [elapsed]
        loaded = {"load_s": round(perf_counter() - started, 2), "cold_answers": len(cold)}
        return loaded | ({"cold_max_ms": round(max(cold), 1)} if cold else {})


def stages(before: Mapping[str, float], after: Mapping[str, float]) -> dict[str, float]:
    """Mean milliseconds of each stage between two readings of the metrics."""
    names = [re.search(r'sum\{stage="(\w+)"', name) for name in after if name.startswith("mnemoray_recall_stage")]
    found = {}
    for name in (match.group(1) for match in names if match):
        total, count = (
            after[key] - before.get(key, 0.0)
            for key in (f'mnemoray_recall_stage_seconds_{part}{{stage="{name}"}}' for part in ("sum", "count"))
        )
        if count:
            found[name] = round(1000 * total / count, 3)
    return found


def floor_ms(size: int, embedder: MiniLM) -> dict[str, float]:
    """What a search cannot do without on this machine."""
    texts = [f"Who fixed something near number {number}?" for number in range(20)]
    embedding = []
    for text in texts:
        started = perf_counter()
        embedder.embed([text])
        embedding.append(perf_counter() - started)
    buffer = np.ones(32_000_000, dtype=np.float64)
    started = perf_counter()
    for _ in range(5):
        buffer.sum()
    bandwidth = 5 * buffer.nbytes / (perf_counter() - started)
    scan = size * embedder.dimension * 2 / bandwidth
    embed = float(np.median(embedding))
    return {"embed": round(1000 * embed, 2), "scan": round(1000 * scan, 3), "total": round(1000 * (embed + scan), 2)}


async def by_size(asker: Asker, sizes: Sequence[int], requests: int, embedder: MiniLM) -> dict[str, Any]:
    results = {}
    for size in sizes:
        agent = f"agent-{size}"
        bytes_before = (await asker.metrics())["mnemoray_resident_bytes"]
        loaded = await asker.become_resident(agent)
        after = await asker.metrics()
        times = await asker.several(agent, requests)
        results[str(size)] = {
            **loaded,
            "bytes_per_memory": round((after["mnemoray_resident_bytes"] - bytes_before) / size),
            "warm_ms": percentiles(times),
            "stages_ms": stages(after, await asker.metrics()),
            "floor_ms": floor_ms(size, embedder),
        }
    return results


async def beside_a_busy_one(asker: Asker, large: str, requests: int) -> dict[str, Any]:
    """A small agent's latency alone, and while a large one is asked without a break."""
    alone = await asker.several(SMALL, requests)
    busy = asyncio.create_task(_without_end(asker, large))
    beside = await asker.several(SMALL, requests)
    busy.cancel()
    await asyncio.gather(busy, return_exceptions=True)
    return {"alone_ms": percentiles(alone), "beside_ms": percentiles(beside)}


async def _without_end(asker: Asker, agent: str) -> None:
    while True:
        await asker.ask(agent)


async def throughput(asker: Asker, requests: int) -> dict[str, Any]:
    """Searches per second of many clients over many agents, all resident."""
    numbers = iter(range(requests))
    answers: list[tuple[float, bool]] = []

    async def client() -> None:
        for number in numbers:
            answers.append(await asker.ask(f"many-{number % AGENTS}"))

    for number in range(AGENTS):
        await asker.ask(f"many-{number}")
    started = perf_counter()
    await asyncio.gather(*(client() for _ in range(CLIENTS)))
    elapsed = perf_counter() - started
    return {
        "clients": CLIENTS,
        "agents": AGENTS,
        "searches_per_s": round(len(answers) / elapsed, 1),
        "hit_rate": round(sum(resident for _, resident in answers) / len(answers), 4),
        **percentiles([milliseconds for milliseconds, _ in answers]),
    }


async def run(target: Instance, dsn: str, sizes: Sequence[int], requests: int) -> dict[str, Any]:
    embedder = MiniLM(threads=1)
    agents = {f"agent-{size}": size for size in sizes} | {SMALL: 500}
    agents |= {f"many-{number}": AGENT_SIZE for number in range(AGENTS)}
    started = time.perf_counter()
    await fill(dsn, agents, embedder)
    filled_s = round(time.perf_counter() - started, 1)
    async with httpx.AsyncClient(base_url=target.url, headers=target.headers, timeout=60) as api:
        asker = Asker(api)
        return {
            "filled_s": filled_s,
            "by_size": await by_size(asker, sizes, requests, embedder),
            "busy": await beside_a_busy_one(asker, f"agent-{max(sizes)}", requests),
            "throughput": await throughput(asker, 4 * requests),
            "machine": machine(),
        }


def report(results: Mapping[str, Any]) -> Iterator[Table | str]:
    shown = Table(title="One client, every query new; milliseconds", title_justify="left")
    for column in ("memories", "p50", "p95", "p99", "floor", "p50 / floor", "B/memory", "load s", "cold answers"):
        shown.add_column(column)
    for size, found in results["by_size"].items():
        warm, floor = found["warm_ms"], found["floor_ms"]["total"]
        figures = [f"{warm[q]:.1f}" for q in ("p50", "p95", "p99")] + [f"{floor:.1f}", f"{warm['p50'] / floor:.1f}"]
        shown.add_row(size, *figures, str(found["bytes_per_memory"]), str(found["load_s"]), str(found["cold_answers"]))
    yield shown
    split = Table(title="Mean of each stage, milliseconds", title_justify="left")
    names = list(dict.fromkeys(name for found in results["by_size"].values() for name in found["stages_ms"]))
    for column in ("memories", *names):
        split.add_column(column)
    for size, found in results["by_size"].items():
        split.add_row(size, *(f"{found['stages_ms'].get(name, 0.0):.2f}" for name in names))
    yield split
    busy = results["busy"]
    yield f"500 memories: p99 {busy['alone_ms']['p99']} ms alone, {busy['beside_ms']['p99']} ms beside a busy agent"
    found = results["throughput"]
    yield (
        f"{found['clients']} clients over {found['agents']} agents: {found['searches_per_s']} searches/s, "
        f"p50 {found['p50']} ms, p95 {found['p95']} ms, hit rate {found['hit_rate']}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="write the figures here")
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)), help="memories per agent, comma-separated")
    parser.add_argument("--requests", type=int, default=200, help="per measurement")
    parser.add_argument("--replicas", type=int, default=1, help="of the API")
    arguments = parser.parse_args()
    sizes = [int(size) for size in arguments.sizes.split(",")]
    with started("--replicas", str(arguments.replicas)) as (target, root):
        dsn = PostgresServer(DataDir(root)).dsn
        results = asyncio.run(run(target, dsn, sizes, arguments.requests)) | {"replicas": arguments.replicas}
    for part in report(results):
        Console().print(part)
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=2))


if __name__ == "__main__":
    main()
