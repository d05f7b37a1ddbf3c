"""Vectors in half precision, scanned exactly by FAISS.

Measured at 384 dimensions on 100,000 vectors around real sentences, one core, recall@20 against float32: fp16 5 ms at
1.00, int8 6 ms at 0.98, float32 13 ms. Half precision needs no second pass, and half of float32's memory.
"""

from __future__ import annotations

import faiss
import numpy as np

from memory.columns import GROWTH
from memory.lexical import Scores
from memory.ports import HalfVectors, Vectors
from memory.ranking import RowNumbers
from memory.relevance import Mask


class VectorIndex:
    """Unit vectors by row, dense from 0."""

    def __init__(self, dimension: int) -> None:
        self.dimension = dimension
        self._index, self._codes = _allocated(0, dimension)

    def __len__(self) -> int:
        return int(self._index.ntotal)

    @property
    def nbytes(self) -> int:
        return self._codes.nbytes

    def append(self, vectors: HalfVectors) -> None:
        """Give the vectors, of shape ``(new, dimension)``, the next rows."""
        length = len(self) + len(vectors)
        if length > len(self._codes):
            index, codes = _allocated(max(length, int(len(self._codes) * GROWTH)), self.dimension)
            codes[: len(self)] = self._codes[: len(self)]
            self._index, self._codes = index, codes
        self._codes[length - len(vectors) : length] = vectors
        self._index.ntotal = length

    def replace_by_last(self, row: int) -> None:
        """Take ``row`` out and give its number to the last row."""
        last = len(self) - 1
        self._codes[row] = self._codes[last]
        self._codes[last] = 0
        self._index.ntotal = last

    def get(self, rows: RowNumbers) -> Vectors:
        """Of shape ``(len(rows), dimension)``."""
        return self._codes[rows].astype(np.float32)

    def nearest(self, query: Vectors, count: int, allowed: Mask) -> tuple[RowNumbers, Scores]:
        """Up to ``count`` allowed rows nearest to the unit vector ``query``, and their cosines."""
        everything = bool(allowed.all())
        count = min(count, len(self) if everything else int(np.count_nonzero(allowed)))
        if count == 0:
            return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.float32)
        parameters = None
        if not everything:
            bits = np.packbits(allowed, bitorder="little")
            selector = faiss.IDSelectorBitmap(len(bits), faiss.swig_ptr(bits))
            parameters = faiss.SearchParameters()
            parameters.sel = selector
        cosines, rows = self._index.search(query[None], count, params=parameters)
        return rows[0], cosines[0]


def _allocated(capacity: int, dimension: int) -> tuple[faiss.IndexScalarQuantizer, HalfVectors]:
    """An empty FAISS index with room for ``capacity`` vectors, and its memory as an array that lives as long as it."""
    index = faiss.IndexScalarQuantizer(dimension, faiss.ScalarQuantizer.QT_fp16, faiss.METRIC_INNER_PRODUCT)
    index.is_trained = True  # half precision has nothing to learn
    if capacity == 0:
        return index, np.zeros((0, dimension), dtype=np.float16)
    index.codes.resize(capacity * index.code_size)
    codes = faiss.rev_swig_ptr(index.codes.data(), capacity * index.code_size)
    return index, codes.view(np.float16).reshape(capacity, dimension)
