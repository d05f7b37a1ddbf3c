"""A cache of query vectors: the same question is often asked again within seconds."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable

from memory.ports import Vectors


class QueryCache:
    """The last ``size`` vectors, by text."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._known: OrderedDict[str, Vectors] = OrderedDict()

    async def get(self, text: str, embed: Callable[[], Awaitable[Vectors]]) -> Vectors:
        """The vector of ``text``, which ``embed`` makes when it is not known."""
        if (known := self._known.get(text)) is not None:
            self._known.move_to_end(text)
            return known
        vector = await embed()
        self._known[text] = vector
        while len(self._known) > self._size:
            self._known.popitem(last=False)
        return vector
