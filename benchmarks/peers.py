"""This system beside other memory stores: the same turns, questions and embedder, one machine, one run.

``python -m benchmarks.peers --data locomo10.json [--json OUT] [--plot PNG] [--limit N] [--url URL --key KEY]``

Every peer gets an environment of its own with pinned packages (pip downloads them once), and a PostgreSQL that is
started for it. Peers are given vectors made before, so their figures hold no embedding. Nor do this system's in this
process, which are those of its writer and its retriever on their stores; through HTTP it embeds by itself, so those
figures hold it. What embedding takes is printed beside.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import venv
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from importlib.metadata import version
from pathlib import Path
from time import perf_counter
from typing import Any

import httpx
import numpy as np
import psycopg
from rich.console import Console
from rich.table import Table

from benchmarks import locomo
from benchmarks.in_process import measure
from benchmarks.instance import Instance, instance, machine
from benchmarks.latency import percentiles
from benchmarks.locomo import BATCH, Question
from benchmarks.metrics import recall_at
from cluster.paths import DataDir
from cluster.postgres_server import PostgresServer
from memory.phrasing import embedded_text, episode_text
from memory.ports import Vectors
from pipelines.conversations import Defaults, WriteItem, read
from stores.models.minilm import DIMENSION, MODEL, MiniLM

WORKER = Path(__file__).with_name("peer_worker.py")
SINGLES = "locomo-one-by-one"  # the agent whose turns come one by one, beside the one that is searched
TOPS = (10, 20)
WARM_UP = 20  # questions before each measurement that do not count
INSTALL_TIMEOUT_S = 900
WORKER_TIMEOUT_S = 3_600


@dataclass(frozen=True, kw_only=True)
class Peer:
    """One other store."""

    name: str  # what the worker calls it
    title: str
    requirements: tuple[str, ...]  # pinned

    @property
    def packages(self) -> list[str]:
        return [requirement.partition("==")[0].partition("[")[0] for requirement in self.requirements]


_DRIVER = ("psycopg[binary,pool]==3.3.9", "numpy==2.4.6")
PEERS = (
    Peer(
        name="langgraph",
        title="LangGraph PostgresStore",
        requirements=("langgraph-checkpoint-postgres==3.2.0", "langgraph-checkpoint==4.3.2", *_DRIVER),
    ),
    Peer(
        name="mem0",
        title="mem0 (infer=False)",
        requirements=("mem0ai==2.2.1", "openai==3.57.0", "qdrant-client==1.20.0", "sqlalchemy==2.1.9", *_DRIVER),
    ),
)


class Skipped(Exception):
    """A peer that could not be measured; the message is the reason."""


@dataclass(frozen=True, kw_only=True)
class Turn:
    id: str
    user: str
    text: str  # as it is embedded


@dataclass(frozen=True, kw_only=True)
class Work:
    """What every system is given."""

    file: Path
    turns: Sequence[Turn]
    asked: Sequence[Question]
    turn_vectors: Vectors
    question_vectors: Vectors
    embedding: Mapping[str, Any]  # what making the vectors took


@dataclass(frozen=True, kw_only=True)
class Searches:
    """One ``top_k``."""

    times_ms: Sequence[float]
    ranked: Sequence[Sequence[str]]


@dataclass(frozen=True, kw_only=True)
class Measured:
    """One system."""

    title: str
    embeds: bool  # whether its figures hold the embedding
    versions: Mapping[str, str]
    adds_per_s: float
    batch_adds_per_s: float
    searches: Mapping[int, Searches]


# What is measured


def work_of(file: Path) -> Work:
    turns, asked = list(turns_of(file)), list(locomo.questions(file))
    embedder = MiniLM()
    embedder.embed([turn.text for turn in turns[:WARM_UP]])
    started = perf_counter()
    turn_vectors = embedder.embed([turn.text for turn in turns])
    turns_s = perf_counter() - started
    vectors, times = [], []
    for question in asked:
        started = perf_counter()
        vectors.append(embedder.embed([question.text])[0])
        times.append(1000 * (perf_counter() - started))
    return Work(
        file=file,
        turns=turns,
        asked=asked,
        turn_vectors=turn_vectors,
        question_vectors=np.stack(vectors),
        embedding={"model": MODEL, "turns_per_s": round(len(turns) / turns_s, 1), "question_ms": percentiles(times)},
    )


def writes_of(file: Path) -> Iterator[dict[str, Any]]:
    """What an import of this file sends, less the idempotency keys: a repeated run is to be a run."""
    for item in read(file, Defaults(agent_id=locomo.AGENT)):
        if isinstance(item, WriteItem):
            yield {name: value for name, value in item.body.items() if name != "idempotency_key"}


def turns_of(file: Path) -> Iterator[Turn]:
    for body in writes_of(file):
        occurred_at = datetime.fromisoformat(body["occurred_at"])
        text = episode_text(body["content"], speaker=body.get("speaker"), occurred_at=occurred_at)
        yield Turn(id=body["metadata"]["dia_id"], user=body["user_id"], text=text)


@contextmanager
def first_conversations(file: Path, limit: int | None) -> Iterator[Path]:
    if limit is None:
        yield file
        return
    with tempfile.TemporaryDirectory() as folder:
        shortened = Path(folder) / file.name
        shortened.write_text(json.dumps(json.loads(file.read_text("utf-8"))[:limit]))
        yield shortened


def exact_recall(work: Work) -> float:
    """Recall@10 of exact cosine over the same vectors: what a store that only compares vectors can reach."""
    users = np.array([turn.user for turn in work.turns])
    found = []
    for question, vector in zip(work.asked, work.question_vectors, strict=True):
        own = np.flatnonzero(users == question.sample)
        best = own[np.argsort(-(work.turn_vectors[own] @ vector))[:10]]
        found.append(recall_at(10, [work.turns[row].id for row in best], question.evidence))
    return round(float(np.mean(found)), 4)


# This system, through HTTP


def over_http(target: Instance, work: Work) -> Measured:
    users, writes = sorted({turn.user for turn in work.turns}), list(writes_of(work.file))
    with httpx.Client(base_url=target.url, headers=target.headers, timeout=60) as api:
        _refuse_known(api, users)
        try:
            started = perf_counter()
            locomo.store(api, writes)
            batch_s = perf_counter() - started
            searches = {top_k: _search(api, work.asked, top_k) for top_k in TOPS}
            started = perf_counter()
            _remember_one_by_one(api, writes)
            single_s = perf_counter() - started
        finally:
            _forget(api, users)
    return Measured(
        title="mnemoray over HTTP",
        embeds=True,
        versions={"mnemoray-cluster": version("mnemoray-cluster")},
        adds_per_s=len(work.turns) / single_s,
        batch_adds_per_s=len(work.turns) / batch_s,
        searches=searches,
    )


def _refuse_known(api: httpx.Client, users: Sequence[str]) -> None:
    """Turns that are there already would be found twice; and what was not stored here must not be deleted after."""
    for user in users:
        page = api.get(f"/v1/agents/{locomo.AGENT}/memories", params={"user_id": user, "limit": 1})
        if page.raise_for_status().json()["items"]:
            sys.exit(f"this instance remembers {user} of agent {locomo.AGENT} already; name a fresh one, or no --url")


def _remember_one_by_one(api: httpx.Client, writes: Sequence[Mapping[str, Any]]) -> None:
    """Each write is answered when it is committed, as the peers' are."""
    for body in writes:
        api.post(f"/v1/agents/{SINGLES}/memories", json={**body, "wait": "persistent"}).raise_for_status()


def _search(api: httpx.Client, asked: Sequence[Question], top_k: int) -> Searches:
    # Question marks of another number keep the query out of the cache of query embeddings.
    fresh = [replace(question, text=question.text + "?" * (1 + TOPS.index(top_k))) for question in asked]
    for question in asked[:WARM_UP]:
        locomo.ask(api, replace(question, text=f"{question.text} {top_k}"), None, top_k)
    times, ranked = [], []
    for question in fresh:
        started = perf_counter()
        ranked.append(locomo.ask(api, question, None, top_k))
        times.append(1000 * (perf_counter() - started))
    return Searches(times_ms=times, ranked=ranked)


def _forget(api: httpx.Client, users: Sequence[str]) -> None:
    for agent in (locomo.AGENT, SINGLES):
        for user in users:
            api.delete(f"/v1/agents/{agent}/memories", params={"user_id": user}).raise_for_status()


# This system, in this process


def in_process(work: Work) -> Measured:
    writes = list(writes_of(work.file))
    vectors = MiniLM().embed([embedded_text(body["content"], speaker=body.get("speaker")) for body in writes])
    asked = [(question.sample, question.text) for question in work.asked]
    found = measure(writes, vectors, asked, batch=BATCH, tops=TOPS)
    return Measured(
        title="mnemoray in process",
        embeds=False,
        versions={"mnemoray-cluster": version("mnemoray-cluster")},
        adds_per_s=found.adds_per_s,
        batch_adds_per_s=found.batch_adds_per_s,
        searches={
            top_k: Searches(times_ms=times, ranked=[[hit["dia_id"] for hit in hits] for hits in ranked])
            for top_k, (times, ranked) in found.searches.items()
        },
    )


# Peers


@contextmanager
def postgres() -> Iterator[PostgresServer]:
    root = Path(tempfile.mkdtemp(prefix="mn-"))
    root.chmod(0o755)  # the database's system user must get in
    data = DataDir(root)
    data.create()
    server = PostgresServer(data)
    try:
        server.start()
        yield server
    finally:
        server.stop()
        shutil.rmtree(root, ignore_errors=True)


def _admin(server: PostgresServer) -> str:
    return server.dsn.replace("user=mnemoray", "user=postgres")


def database(server: PostgresServer, name: str) -> str:
    """Connection string of a new database with the extension."""
    with psycopg.connect(_admin(server), autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}" OWNER mnemoray')
    with psycopg.connect(_admin(server).replace("dbname=mnemoray", f"dbname={name}"), autocommit=True) as connection:
        connection.execute("CREATE EXTENSION vector")
    return server.dsn.replace("dbname=mnemoray", f"dbname={name}")


def server_versions(server: PostgresServer) -> dict[str, str]:
    query = "SELECT current_setting('server_version'), extversion FROM pg_extension WHERE extname = 'vector'"
    with psycopg.connect(server.dsn) as connection:
        ((server_version, extension),) = connection.execute(query).fetchall()
    return {"postgresql": server_version, "pgvector": extension}


def environment(peer: Peer, folder: Path) -> Path:
    """The interpreter that has this peer installed; it is kept for the next run."""
    home = folder.resolve() / peer.name
    stamp, python = home / "requirements.txt", home / "bin" / "python"
    wanted = "\n".join(peer.requirements)
    if stamp.exists() and stamp.read_text() == wanted:
        return python
    shutil.rmtree(home, ignore_errors=True)
    venv.create(home, with_pip=True)
    print(f"installing {peer.title} in {home}", file=sys.stderr)
    install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *peer.requirements]
    _call(install, f"{peer.title} cannot be installed", INSTALL_TIMEOUT_S)
    stamp.write_text(wanted)
    return python


def _call(command: Sequence[str], problem: str, timeout_s: int, folder: Path | None = None) -> None:
    """Run to the end; the reason of a failure is its last line, and all of its lines are shown."""
    try:
        done = subprocess.run(
            command,
            check=False,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=timeout_s,
            cwd=folder,
        )
    except subprocess.TimeoutExpired as exc:
        raise Skipped(f"{problem}: not done after {timeout_s} s") from exc
    if done.returncode:
        print(done.stdout, file=sys.stderr)
        raise Skipped(f"{problem}: {(done.stdout.strip().splitlines() or ['no output'])[-1]}")


def beside(peer: Peer, work: Work, server: PostgresServer, folder: Path) -> Measured:
    """Let the worker fill and search one peer. Raises ``Skipped``."""
    python = environment(peer, folder)
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        job, answer = scratch / "job.json", scratch / "answer.json"
        job.write_text(json.dumps(_job(peer, work, server, scratch)))
        # Isolated: neither this project's folder nor the user's packages are to be found.
        command = [str(python), "-I", str(WORKER), peer.name, str(job), str(answer)]
        _call(command, f"{peer.title} failed", WORKER_TIMEOUT_S, scratch)
        found = json.loads(answer.read_text())
    return Measured(
        title=peer.title,
        embeds=False,
        versions=found["versions"],
        adds_per_s=found["adds_per_s"],
        batch_adds_per_s=found["batch_adds_per_s"],
        searches={int(top_k): Searches(**searches) for top_k, searches in found["searches"].items()},
    )


def _job(peer: Peer, work: Work, server: PostgresServer, folder: Path) -> dict[str, Any]:
    vectors = folder / "vectors.npz"
    np.savez(vectors, turns=work.turn_vectors, questions=work.question_vectors)
    return {
        "dsn": database(server, peer.name),
        "batch_dsn": database(server, f"{peer.name}_batch"),
        "dimension": DIMENSION,
        "vectors": str(vectors),
        "turns": [vars(turn) for turn in work.turns],
        "questions": [{"user": question.sample, "text": question.text} for question in work.asked],
        "tops": TOPS,
        "warm_up": WARM_UP,
        "batch": BATCH,
        "packages": peer.packages,
    }


# Figures


def run(work: Work, url: str | None, key: str | None, folder: Path) -> dict[str, Any]:
    """All systems, one after another, so that none loads the machine of the next."""
    rows, skipped = [], {}
    rows.append(in_process(work))
    with instance(url, key) as target:
        rows.append(over_http(target, work))
    with postgres() as server:
        versions = server_versions(server)
        for peer in PEERS:
            try:
                rows.append(beside(peer, work, server, folder))
            except Skipped as exc:
                skipped[peer.name] = str(exc)
    return {
        "conversations": len({turn.user for turn in work.turns}),
        "turns": len(work.turns),
        "questions": len(work.asked),
        "embedding": dict(work.embedding),
        "exact_recall@10": exact_recall(work),
        "systems": [summarise(row, work.asked) for row in rows],
        "skipped": skipped,
        "versions": versions,
        "machine": machine(),
    }


def summarise(row: Measured, asked: Sequence[Question]) -> dict[str, Any]:
    figures: dict[str, Any] = {"system": row.title, "embedding_included": row.embeds, "versions": dict(row.versions)}
    figures |= {"adds_per_s": round(row.adds_per_s, 1), "batch_adds_per_s": round(row.batch_adds_per_s, 1)}
    for top_k, found in row.searches.items():
        recalls = map(partial(_recall, top_k), found.ranked, asked)
        figures[f"top_{top_k}_ms"] = percentiles(found.times_ms)
        figures[f"recall@{top_k}"] = round(sum(recalls) / len(asked), 4)
        figures[f"fewest_of_{top_k}"] = min(map(len, found.ranked))
    return figures


def _recall(top_k: int, ranked: Sequence[str], question: Question) -> float:
    return recall_at(top_k, ranked, question.evidence)


def table(results: Mapping[str, Any]) -> Table:
    embedding = results["embedding"]
    shown = Table(
        title=f"{results['conversations']} conversations, {results['turns']} turns, {results['questions']} questions",
        title_justify="left",
        caption=f"Embedding takes {embedding['question_ms']['p50']:.1f} ms (p50) a question, and does "
        f"{embedding['turns_per_s']:.0f} turns/s.\nExact cosine over the same vectors: "
        f"recall@10 {results['exact_recall@10']:.3f}.",
        caption_justify="left",
    )
    for column in ("system", "adds/s", "batched", "top", "p50 ms", "p95 ms", "recall"):
        shown.add_column(column)
    for found in results["systems"]:
        first, *others = _cells(found)
        shown.add_row(found["system"], f"{found['adds_per_s']:.0f}", f"{found['batch_adds_per_s']:.0f}", *first)
        for cells in others:
            shown.add_row(f"  {embedding_of(found)}", "", "", *cells)
    return shown


def _cells(found: Mapping[str, Any]) -> Iterator[list[str]]:
    for top_k in TOPS:
        times = found[f"top_{top_k}_ms"]
        yield [str(top_k), f"{times['p50']:.1f}", f"{times['p95']:.1f}", f"{found[f'recall@{top_k}']:.3f}"]


def embedding_of(found: Mapping[str, Any]) -> str:
    return "embedding included" if found["embedding_included"] else "vectors given"


def plot(results: Mapping[str, Any], file: Path) -> None:
    """Recall@10 against the median latency; up and to the left is better."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    figure, axis = pyplot.subplots(figsize=(7, 4.2), layout="constrained")
    for found in results["systems"]:
        name = f"{found['system']} ({embedding_of(found)})"
        axis.scatter(found["top_10_ms"]["p50"], found["recall@10"], s=70, label=name)
    axis.axhline(
        results["exact_recall@10"], color="black", linestyle="--", linewidth=1, label="exact cosine, same vectors"
    )
    axis.set_xscale("log")
    axis.set_xticks(ticks := (1, 2, 5, 10, 20, 50, 100), list(map(str, ticks)))
    axis.minorticks_off()
    axis.set_ylim(0, 1)
    axis.set_xlabel("search for 10, p50, ms")
    axis.set_ylabel("recall@10")
    axis.set_title(f"{results['questions']} questions, {results['turns']} turns", loc="left")
    axis.legend()
    figure.savefig(file, dpi=130)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="a LoCoMo file")
    parser.add_argument("--json", type=Path, help="write the figures here")
    parser.add_argument("--plot", type=Path, help="write a PNG here")
    parser.add_argument("--limit", type=int, help="take the first N conversations only")
    parser.add_argument("--peers-dir", type=Path, default=Path(".mnemoray/peers"), help="keep the peers' packages here")
    parser.add_argument("--url", help="a running instance without these conversations; left out, one is started")
    parser.add_argument("--key", help="its API key")
    arguments = parser.parse_args()
    with first_conversations(arguments.data, arguments.limit) as file:
        results = run(work_of(file), arguments.url, arguments.key, arguments.peers_dir)
    console = Console()
    console.print(table(results))
    for reason in results["skipped"].values():
        console.print(f"skipped: {reason}", markup=False)
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=2))
    if arguments.plot:
        plot(results, arguments.plot)


if __name__ == "__main__":
    main()
