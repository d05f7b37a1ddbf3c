"""Normalisation: when two texts count as the same."""

from __future__ import annotations

import hashlib
import unicodedata

_EDGES = " \t\r\n.!?,;:\"'`“”‘’«»"


def normalise_fact(text: str) -> str:
    """Unicode NFKC, case folded, white space collapsed, punctuation and quotes at the ends taken off."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    collapsed = " ".join(folded.split())
    return collapsed.strip(_EDGES) or collapsed


def content_hash(text: str) -> str:
    """SHA-256 of the normalised text, 64 hexadecimal digits."""
    return hashlib.sha256(normalise_fact(text).encode("utf-8", "surrogatepass")).hexdigest()
