"""The Embedder port over an OpenAI-compatible server, and the choice between it and the built-in model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from configs.settings import EmbeddingSettings
from memory.errors import InvalidOutput, Misconfigured, Unavailable
from memory.ports import Embedder, Vectors
from stores.models.endpoint import Endpoint
from stores.models.minilm import MiniLM
from stores.models.queries import QueryCache

BATCH = 64  # texts in one request
CONCURRENCY = 16


class ServedEmbedder:
    """Vectors of a model behind ``/v1/embeddings``, made unit length."""

    def __init__(self, settings: EmbeddingSettings, *, query_cache_size: int = 0) -> None:
        self.model = settings.model
        self.dimension = settings.dimension
        self._settings = settings
        self._queries = QueryCache(query_cache_size)
        self._endpoint = Endpoint(
            settings.url or "", api_key=settings.api_key, timeout_s=settings.timeout_s, concurrency=CONCURRENCY
        )

    async def aclose(self) -> None:
        await self._endpoint.aclose()

    async def ready(self) -> None:
        """Raises ``Unavailable`` or ``Misconfigured`` when texts cannot be embedded now."""
        await self._embed(["ready"])

    async def embed_documents(self, texts: Sequence[str]) -> Vectors:
        """Unit vectors of shape ``(len(texts), dimension)``. Raises ``Unavailable`` or ``Misconfigured``."""
        named = [f"{self._settings.document_prefix}{text}" for text in texts]
        parts = [await self._embed(named[start : start + BATCH]) for start in range(0, len(named), BATCH)]
        return np.concatenate(parts) if parts else np.empty((0, self.dimension), dtype=np.float32)

    async def embed_query(self, text: str) -> Vectors:
        """Unit vector of shape ``(dimension,)``; recent queries are remembered. Raises like ``embed_documents``."""
        return await self._queries.get(text, lambda: self._query(text))

    async def _query(self, text: str) -> Vectors:
        vector: Vectors = (await self._embed([f"{self._settings.query_prefix}{text}"]))[0]
        return vector

    async def _embed(self, texts: Sequence[str]) -> Vectors:
        body = {"model": self.model, "input": list(texts), "encoding_format": "float"}
        try:
            vectors = _vectors(await self._endpoint.call("POST", "embeddings", body))
        except InvalidOutput as exc:  # of a server that stands in for a file on disk: asking again may help
            raise Unavailable(f"{self._endpoint.url}: {exc}") from exc
        if vectors.shape != (len(texts), self.dimension):
            raise Misconfigured(
                f"{self.model} at {self._endpoint.url} answered {vectors.shape} for {len(texts)} texts; "
                f"embedding.dimension is {self.dimension}"
            )
        return vectors


def _vectors(answer: Mapping[str, Any]) -> Vectors:
    """Unit vectors in the order of the texts."""
    try:
        rows = sorted(answer["data"], key=lambda row: row["index"])
        found = np.array([row["embedding"] for row in rows], dtype=np.float32)
    except (KeyError, TypeError, ValueError) as exc:
        raise InvalidOutput(f"the answer has no vectors: {exc!r}") from None
    norms = np.linalg.norm(found, axis=-1, keepdims=True)
    if found.ndim != 2 or not np.isfinite(found).all() or not (norms > 0).all():
        raise InvalidOutput("the answer has vectors that are not numbers, or nothing but zeros")
    return np.asarray(found / norms, dtype=np.float32)


def open_embedder(settings: EmbeddingSettings, *, query_cache_size: int = 0) -> Embedder:
    """The configured model. Raises ``Misconfigured`` for one that is neither built in nor served."""
    if settings.url is not None:
        return ServedEmbedder(settings, query_cache_size=query_cache_size)
    embedder = MiniLM(threads=settings.threads, query_cache_size=query_cache_size)
    wanted = (settings.model, settings.dimension)
    if wanted != (embedder.model, embedder.dimension):
        raise Misconfigured(
            f"embedding model {wanted[0]} with {wanted[1]} dimensions is not built in ({embedder.model}, "
            f"{embedder.dimension}); set embedding.url to a server that has it"
        )
    return embedder
