"""How cold agents are best answered: an exact scan of the namespace, or the pooled HNSW graph.

``python -m benchmarks.cold --rows 300000 --json out.json`` fills one pool, measures recall@20 and the median latency
of namespaces of several sizes through ``RecallStore``, and prints the size from which the graph is the better choice.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np
import psycopg
from numpy.random import Generator, default_rng
from pgvector.psycopg import register_vector_async

from cluster.paths import DataDir
from cluster.postgres_server import PostgresServer
from configs.settings import RecallSettings
from memory.ports import Vectors
from memory.records import AgentId, TenantId, Tier, UserId
from migrations.runner import FixedSettings, migrate
from stores.postgres.database import Database
from stores.postgres.recall import Filters, RecallStore, Scope

SIZES = (100, 1_000, 10_000, 30_000, 100_000)  # rows of the namespaces that are measured
FILLER = 1_000  # rows of the namespaces around them
RECALL_AT = 20
RECALL_TARGET = 0.95
CLEARLY = 0.8  # share of the scan's time
TENANT, AGENT, MODEL = TenantId("bench"), AgentId("bench"), "bench"
EVERYTHING = 1_000_000_000
#: An expression that no index serves.
_EVERYTHING = (
    "SELECT id FROM semantic_memory WHERE valid_until IS NULL AND NOT is_deleted "
    "ORDER BY (embedding <=> %(vector)s) + 0 LIMIT %(limit)s"
)
GRAPHS = {
    f"ef {ef}, {tuples:,} tuples": RecallSettings(exact_below=0, ef_search=ef, max_scan_tuples=tuples)
    for ef, tuples in ((100, 20_000), (200, 200_000), (500, 200_000), (1_000, 200_000))
}


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """One namespace under one setting."""

    size: int
    setting: str
    recall: float
    p50_ms: float


@contextmanager
def _server() -> Iterator[str]:
    """An embedded server that goes away afterwards; gives the DSN of the application's role."""
    root = Path(tempfile.mkdtemp(prefix="cold-"))
    root.chmod(0o755)  # the server runs as another user when this one is root
    data = DataDir(root)
    data.create()
    server = PostgresServer(data)
    server.start()
    try:
        yield server.dsn
    finally:
        server.stop()
        shutil.rmtree(root, ignore_errors=True)


def _vectors(rng: Generator, centres: Vectors, count: int) -> Vectors:
    """Unit vectors around topics; texts of an embedding model are clustered, not uniform."""
    noise = rng.standard_normal((count, centres.shape[1]), dtype=np.float32) * np.float32(1.2 / centres.shape[1] ** 0.5)
    found = centres[rng.integers(0, len(centres), count)] + noise
    return np.asarray(found / np.linalg.norm(found, axis=1, keepdims=True), dtype=np.float32)


def _questions(rng: Generator, centres: Vectors, count: int) -> Vectors:
    """Unit vectors between topics, as questions are: much harder for a graph than neighbours of a stored row."""
    found = sum(_vectors(rng, centres, count) for _ in range(3))
    return np.asarray(found / np.linalg.norm(found, axis=1, keepdims=True), dtype=np.float32)


def _namespaces(rows: int) -> tuple[list[int], list[int]]:
    """The sizes to measure, and those of the namespaces around them."""
    sizes = [size for size in SIZES if size * 2 <= rows]
    return sizes, [FILLER] * ((rows - sum(sizes)) // FILLER)


async def _fill(dsn: str, sizes: Sequence[int], centres: Vectors, rng: Generator) -> None:
    """All rows in pool 0, then the graph: building it afterwards takes a fraction of the time."""
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as connection:
        await register_vector_async(connection)
        await connection.execute("SELECT set_config('mnemoray.tenant', %s, false)", [TENANT])
        await connection.execute("SET maintenance_work_mem = '2GB'")
        await connection.execute("SET synchronous_commit = off")
        await connection.execute("DROP INDEX idx_semantic_embedding")
        await connection.execute(
            "CREATE TEMP TABLE loading (namespace BIGINT, name TEXT, number BIGINT, embedding vector)"
        )
        for order, size in enumerate(sizes):
            await _fill_namespace(connection, f"user:{order}", _vectors(rng, centres, size))
        await connection.execute(
            "CREATE INDEX idx_semantic_embedding ON semantic_memory USING hnsw (embedding vector_cosine_ops) "
            "WITH (m = 16, ef_construction = 200)"
        )
        await connection.execute("ANALYZE semantic_memory")


async def _fill_namespace(connection: psycopg.AsyncConnection[Any], name: str, vectors: Vectors) -> None:
    cursor = await connection.execute(
        "INSERT INTO namespaces (tenant_id, agent_id, name, placement, live_count) VALUES (%s, %s, %s, 0, %s) "
        "RETURNING namespace_id",
        [TENANT, AGENT, name, len(vectors)],
    )
    (namespace,) = await cursor.fetchone() or (0,)
    async with connection.cursor() as loader, loader.copy("COPY loading FROM STDIN (FORMAT BINARY)") as copy:
        copy.set_types(["bigint", "text", "bigint", "vector"])
        for number, vector in enumerate(vectors):
            await copy.write_row((namespace, name, number, vector))
    await connection.execute(
        "INSERT INTO semantic_memory (tenant_id, agent_id, namespace, namespace_id, placement, fact, embedding, "
        "embedding_model, content_hash, revision) SELECT %s, %s, name, namespace, 0, 'fact ' || number, embedding, %s, "
        "lpad(number::text, 64, '0'), 1 FROM loading",
        [TENANT, AGENT, MODEL],
    )
    await connection.execute("TRUNCATE loading")


async def _search(
    database: Database, settings: RecallSettings, order: int, queries: Vectors
) -> tuple[list[list[object]], float]:
    """The nearest ids of each query, and the median latency in ms."""
    store = RecallStore(database, settings)
    scope = Scope(tenant_id=TENANT, agent_id=AGENT, user_id=UserId(str(order)))
    found: list[list[object]] = []
    times = []
    for query in (queries[0], *queries):  # the first warms the caches
        started = perf_counter()
        candidates = await store.candidates(scope, query, model=MODEL, tiers=[Tier.SEMANTIC], limit=settings.candidates)
        times.append((perf_counter() - started) * 1_000)
        found.append([candidate.memory.id for candidate in candidates[:RECALL_AT]])
    return found[1:], median(times[1:])


async def _measure_tenant(dsn: str, rows: int, queries: Vectors) -> list[Measurement]:
    """The search over all agents: through the graph, against a scan of everything."""
    settings = RecallSettings()
    database = Database(dsn, pool_size=1)
    await database.open()
    store = RecallStore(database, settings)
    truth, scans, found, times = [], [], [], []
    for query in (queries[0], *queries):  # the first warms the caches
        started = perf_counter()
        async with database.transaction(TENANT) as connection:
            cursor = await connection.execute(_EVERYTHING, {"vector": query, "limit": RECALL_AT})
            truth.append([row["id"] for row in await cursor.fetchall()])
        scanned = perf_counter()
        candidates = await store.tenant_candidates(
            TENANT, query, model=MODEL, tiers=[Tier.SEMANTIC], limit=settings.candidates, filters=Filters()
        )
        times.append((perf_counter() - scanned) * 1_000)
        scans.append((scanned - started) * 1_000)
        found.append([candidate.memory.id for candidate in candidates[:RECALL_AT]])
    await database.close()
    measured = (("whole tenant, scan", 1.0, scans), ("whole tenant, default", _recall(truth[1:], found[1:]), times))
    return [
        Measurement(size=rows, setting=name, recall=recall, p50_ms=median(taken[1:]))
        for name, recall, taken in measured
    ]


def _recall(truth: Sequence[Sequence[object]], found: Sequence[Sequence[object]]) -> float:
    hits = sum(len(set(right) & set(got)) for right, got in zip(truth, found, strict=True))
    return hits / sum(len(right) for right in truth)


async def _measure(dsn: str, sizes: Sequence[int], centres: Vectors, rng: Generator, count: int) -> list[Measurement]:
    database = Database(dsn, pool_size=1)
    await database.open()
    measured = []
    for order, size in enumerate(sizes):
        queries = _questions(rng, centres, count)
        truth, exact_ms = await _search(database, RecallSettings(exact_below=EVERYTHING), order, queries)
        measured.append(Measurement(size=size, setting="exact", recall=1.0, p50_ms=exact_ms))
        for name, settings in GRAPHS.items():
            found, ms = await _search(database, settings, order, queries)
            measured.append(Measurement(size=size, setting=name, recall=_recall(truth, found), p50_ms=ms))
    await database.close()
    return measured


def crossover(measured: Sequence[Measurement]) -> dict[str, int | None]:
    """For each graph setting the smallest size from which it reaches the recall and is clearly faster than the scan.

    Clearly, because for small sizes the planner scans anyway, and the times differ by chance.
    """
    exact = {m.size: m.p50_ms for m in measured if m.setting == "exact"}
    answer: dict[str, int | None] = {}
    for setting in GRAPHS:
        answer[setting] = None
        for m in sorted((m for m in measured if m.setting == setting), key=lambda m: -m.size):
            if m.recall < RECALL_TARGET or m.p50_ms > CLEARLY * exact[m.size]:
                break
            answer[setting] = m.size
    return answer


async def run(dsn: str, *, rows: int, dimension: int, queries: int, seed: int = 1) -> list[Measurement]:
    """Fill an empty database and measure. The database must belong to a role that is not a superuser."""
    rng = default_rng(seed)
    centres = rng.standard_normal((max(20, rows // 300), dimension), dtype=np.float32)
    centres /= np.linalg.norm(centres, axis=1, keepdims=True)
    await migrate(dsn, FixedSettings(partitions=64, dimension=dimension))
    sizes, filler = _namespaces(rows)
    started = perf_counter()
    await _fill(dsn, [*sizes, *filler], centres, rng)
    print(f"{sum(sizes) + sum(filler):,} rows loaded and indexed in {perf_counter() - started:.0f} s", flush=True)
    measured = await _measure(dsn, sizes, centres, rng, queries)
    return measured + await _measure_tenant(dsn, sum(sizes) + sum(filler), _questions(rng, centres, queries))


def _report(measured: Sequence[Measurement], path: Path | None) -> None:
    print(f"{'namespace':>10}  {'setting':<26}{'recall@20':>10}{'p50 ms':>9}")
    for m in measured:
        print(f"{m.size:>10,}  {m.setting:<26}{m.recall:>10.3f}{m.p50_ms:>9.1f}")
    found = crossover(measured)
    for setting, size in found.items():
        print(f"{setting}: " + ("the scan stays better" if size is None else f"better from {size:,} rows"))
    if path is not None:
        path.write_text(json.dumps({"measurements": [asdict(m) for m in measured], "crossover": found}, indent=2))


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.cold", description=__doc__)
    parser.add_argument("--rows", type=int, default=300_000)
    parser.add_argument("--dimension", type=int, default=384)
    parser.add_argument("--queries", type=int, default=30)
    parser.add_argument("--json", type=Path, help="also write the measurements here")
    parser.add_argument("--dsn", help="an empty database; unset starts an embedded server")
    options = parser.parse_args(arguments)
    measure = {"rows": options.rows, "dimension": options.dimension, "queries": options.queries}
    if options.dsn:
        _report(asyncio.run(run(options.dsn, **measure)), options.json)
        return
    with _server() as dsn:
        _report(asyncio.run(run(dsn, **measure)), options.json)


if __name__ == "__main__":
    main()
