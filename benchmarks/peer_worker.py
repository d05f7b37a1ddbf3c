"""Fills one peer and searches it: the part of ``benchmarks.peers`` that runs in the peer's own environment.

``python peer_worker.py PEER JOB ANSWER`` reads the job (turns, questions, vectors, databases) and writes raw figures.
It may import nothing of this project, which is not installed there.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from importlib import import_module, metadata
from itertools import groupby
from pathlib import Path
from time import perf_counter
from typing import Any, Protocol

import numpy as np
import psycopg

Turn = dict[str, str]  # id, user, text
Embed = Callable[[Sequence[str]], list[list[float]]]


class Store(Protocol):
    """What is measured of a peer."""

    def add(self, turn: Turn) -> None: ...

    def add_many(self, turns: Sequence[Turn]) -> None:
        """Turns of one user in one call."""

    def search(self, user: str, query: str, top_k: int) -> list[str]:
        """Ids of the turns found, best first."""


class LangGraph:
    """``PostgresStore``; a namespace for each user, a key for each turn."""

    def __init__(self, store: Any, put: Any) -> None:
        self._store = store
        self._put = put

    def add(self, turn: Turn) -> None:
        self._store.put(("turns", turn["user"]), turn["id"], {"text": turn["text"]})

    def add_many(self, turns: Sequence[Turn]) -> None:
        self._store.batch([self._put(("turns", turn["user"]), turn["id"], {"text": turn["text"]}) for turn in turns])

    def search(self, user: str, query: str, top_k: int) -> list[str]:
        return [item.key for item in self._store.search(("turns", user), query=query, limit=top_k)]


class Mem0:
    """``Memory`` with ``infer=False``. Messages of one call share their metadata, so only single adds keep ids."""

    def __init__(self, memory: Any) -> None:
        self._memory = memory

    def add(self, turn: Turn) -> None:
        self._memory.add(turn["text"], user_id=turn["user"], metadata={"turn": turn["id"]}, infer=False)

    def add_many(self, turns: Sequence[Turn]) -> None:
        messages = [{"role": "user", "content": turn["text"]} for turn in turns]
        self._memory.add(messages, user_id=turns[0]["user"], infer=False)

    def search(self, user: str, query: str, top_k: int) -> list[str]:
        found = self._memory.search(query, top_k=top_k, filters={"user_id": user})["results"]
        return [item["metadata"]["turn"] for item in found]


@contextmanager
def open_langgraph(dsn: str, embed: Embed, dimension: int) -> Iterator[Store]:
    index = {
        "dims": dimension,
        "embed": embed,
        "fields": ["text"],
        "distance_type": "cosine",
        "ann_index_config": {"kind": "hnsw", "vector_type": "vector"},
    }
    with import_module("langgraph.store.postgres").PostgresStore.from_conn_string(dsn, index=index) as store:
        store.setup()
        yield LangGraph(store, import_module("langgraph.store.base").PutOp)


@contextmanager
def open_mem0(dsn: str, embed: Embed, dimension: int) -> Iterator[Store]:
    # Read while the package is imported. Nothing is asked of the model, whose client insists on a key.
    os.environ.update(MEM0_TELEMETRY="False", MEM0_DIR=str(Path.cwd() / "mem0"))
    unused = {"provider": "openai", "config": {"api_key": "unused"}}
    vectors = {"connection_string": dsn, "embedding_model_dims": dimension, "hnsw": True, "collection_name": "turns"}
    config = {
        "vector_store": {"provider": "pgvector", "config": vectors},
        "llm": unused,
        "embedder": unused,
        "history_db_path": ":memory:",
    }
    with import_module("mem0").Memory.from_config(config) as memory:
        memory.embedding_model.embed = lambda text, memory_action=None: embed([text])[0]
        memory.embedding_model.embed_batch = lambda texts, memory_action=None: embed(texts)
        yield Mem0(memory)
        memory.vector_store.connection_pool.close()


PEERS = {"langgraph": open_langgraph, "mem0": open_mem0}


def cached(job: dict[str, Any]) -> Embed:
    """Vectors made before; a text without one is an error. Peers may trim what they embed, so blanks do not count."""
    with np.load(job["vectors"]) as file:
        known = {
            item["text"].strip(): vector
            for name in ("turns", "questions")
            for item, vector in zip(job[name], file[name].tolist(), strict=True)
        }
    return lambda texts: [known[text.strip()] for text in texts]


def timed(call: Callable[[], Any]) -> tuple[float, Any]:
    started = perf_counter()
    result = call()
    return perf_counter() - started, result


def fill(store: Store, turns: Sequence[Turn]) -> None:
    for turn in turns:
        store.add(turn)


def fill_in_batches(store: Store, turns: Sequence[Turn], size: int) -> None:
    for _, group in groupby(turns, key=lambda turn: turn["user"]):
        rest = list(group)
        for start in range(0, len(rest), size):
            store.add_many(rest[start : start + size])


def search(store: Store, job: dict[str, Any], top_k: int) -> dict[str, Any]:
    """Milliseconds and ids of every question, after some that do not count."""
    for found in job["questions"][: job["warm_up"]]:
        store.search(found["user"], found["text"], top_k)
    asked = [timed(partial(store.search, found["user"], found["text"], top_k)) for found in job["questions"]]
    return {"times_ms": [1000 * took for took, _ in asked], "ranked": [ids for _, ids in asked]}


def run(peer: str, job: dict[str, Any]) -> dict[str, Any]:
    embed, first, turns = cached(job), job["questions"][0], job["turns"]
    with PEERS[peer](job["dsn"], embed, job["dimension"]) as store:
        store.search(first["user"], first["text"], 1)  # tables that are made at the first call
        single_s, _ = timed(partial(fill, store, turns))
        # Plans must not hang on whether autovacuum has come by.
        with psycopg.connect(job["dsn"], autocommit=True) as connection:
            connection.execute("ANALYZE")
        searches = {str(top_k): search(store, job, top_k) for top_k in job["tops"]}
    with PEERS[peer](job["batch_dsn"], embed, job["dimension"]) as store:
        store.search(first["user"], first["text"], 1)
        batch_s, _ = timed(partial(fill_in_batches, store, turns, job["batch"]))
    return {
        "versions": {name: metadata.version(name) for name in job["packages"]},
        "adds_per_s": len(turns) / single_s,
        "batch_adds_per_s": len(turns) / batch_s,
        "searches": searches,
    }


if __name__ == "__main__":
    Path(sys.argv[3]).write_text(json.dumps(run(sys.argv[1], json.loads(Path(sys.argv[2]).read_text()))))
