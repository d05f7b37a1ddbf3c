"""Ports: what the domain needs from models, named by use."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from memory.records import Classification, Interaction

Vectors = NDArray[np.float32]
HalfVectors = NDArray[np.float16]


class Embedder(Protocol):
    """Turns texts into unit-length vectors of one model."""

    @property
    def model(self) -> str:
        """Name stored beside each vector; vectors of different names are never compared."""
        ...

    @property
    def dimension(self) -> int: ...

    async def ready(self) -> None:
        """Raises ``Unavailable`` or ``Misconfigured`` when texts cannot be embedded now."""
        ...

    async def aclose(self) -> None:
        """Close connections and threads."""
        ...

    async def embed_documents(self, texts: Sequence[str]) -> Vectors:
        """Vectors of shape ``(len(texts), dimension)``. Raises ``Unavailable``."""
        ...

    async def embed_query(self, text: str) -> Vectors:
        """Vector of shape ``(dimension,)``. Raises ``Unavailable``."""
        ...


class Classifier(Protocol):
    """Decides importance and extracts facts and skills. Never raises: a failed one returns ``complete=False``."""

    async def classify(self, interactions: Sequence[Interaction]) -> Sequence[Classification]: ...


class Summarizer(Protocol):
    """Shortens a text to at most ``max_tokens`` tokens of the given counter; may return ''. Never raises."""

    @property
    def origin(self) -> str:
        """What makes the summaries: the built-in rules, or a model and its prompt's version."""
        ...

    async def summarize(self, text: str, *, query: str, max_tokens: int) -> str: ...


class TokenCounter(Protocol):
    """Counts the tokens that a text costs in the served model's window."""

    def count(self, text: str) -> int: ...

    def truncate(self, text: str, max_tokens: int) -> str:
        """The longest prefix of ``text`` that costs at most ``max_tokens``."""
        ...
