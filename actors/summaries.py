"""Running summaries of sessions: what leaves working memory stays in the context as a gist."""

from __future__ import annotations

from memory.phrasing import embedded_text
from memory.ports import Summarizer
from stores.valkey.keys import SessionKey
from stores.valkey.working import Left, WorkingMemoryStore

MAX_ROUNDS = 10  # of one request; messages that leave meanwhile wait for the next


class RunningSummaries:
    """Folds the messages that left a session into its summary."""

    def __init__(self, working: WorkingMemoryStore, summarizer: Summarizer, *, max_tokens: int) -> None:
        self._working = working
        self._summarizer = summarizer
        self._max_tokens = max_tokens

    async def update(self, key: SessionKey) -> None:
        """Until nothing is left to fold in. Raises ``Unavailable``."""
        for _ in range(MAX_ROUNDS):
            left = await self._working.left(key)
            summary = await self._summarizer.summarize(_notes(left), query="", max_tokens=self._max_tokens)
            if not await self._working.summarise(key, left, summary, origin=self._summarizer.origin):
                return


def _notes(left: Left) -> str:
    lines = [embedded_text(message.content, speaker=message.speaker or message.role) for message in left.messages]
    return "\n".join([*([left.summary] if left.summary else []), *lines])
