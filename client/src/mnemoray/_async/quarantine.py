"""Quarantine: facts of untrusted channels, which nothing recalls until they are released."""

from __future__ import annotations

from collections.abc import AsyncIterator
from uuid import UUID

from mnemoray._async.verbs import AsyncVerbs
from mnemoray._codec import given
from mnemoray._request import path
from mnemoray.results import Memory, MemoryPage


class AsyncQuarantine(AsyncVerbs):
    """Facts that wait for a decision: release them, or ``delete`` them as any memory."""

    async def quarantine(
        self, *, agent_id: str, user_id: str | None = None, page_size: int = 100
    ) -> AsyncIterator[Memory]:
        """All quarantined facts, newest first, fetched page by page."""
        cursor = None
        while True:
            params = given(user_id=user_id, limit=page_size, cursor=cursor)
            page = await self._get(MemoryPage, path("agents", agent_id, "quarantine"), params)
            for memory in page.items:
                yield memory
            cursor = page.next_cursor
            if cursor is None:
                return

    async def release(self, memory_id: UUID | str, *, agent_id: str) -> Memory:
        """Make a quarantined fact a live one. Not repeated after a lost answer: the second would say 404."""
        at = path("agents", agent_id, "quarantine", memory_id, "release")
        return await self._post(Memory, at, None, repeatable=False)
