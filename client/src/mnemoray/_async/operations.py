"""How accepted writes ended: operations, the ledger, dead letters."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from time import monotonic
from uuid import UUID

from mnemoray._async.verbs import AsyncVerbs
from mnemoray._codec import given
from mnemoray._request import path
from mnemoray.errors import NotSettled
from mnemoray.results import Accepted, DeadLetter, DeadLetterPage, Ledger, Operation

POLL_MAX_S = 1.0


class AsyncOperations(AsyncVerbs):
    """Operations, the ledger, dead letters."""

    async def operation(self, operation: str | Accepted | Operation) -> Operation:
        """The state of an accepted write."""
        return await self._get(Operation, path("operations", _operation_id(operation)))

    async def wait_until_settled(
        self, operation: str | Accepted | Operation, *, timeout_s: float = 60.0, poll_s: float = 0.05
    ) -> Operation:
        """Wait until a write is stored, duplicate, rejected or dead-lettered; the waits between questions double."""
        deadline = monotonic() + timeout_s
        while True:
            found = await self.operation(operation)
            if found.settled:
                return found
            left_s = deadline - monotonic()
            if left_s <= 0:
                raise NotSettled(f"operation {found.operation_id} is still pending after {timeout_s:g} s; wait again")
            await asyncio.sleep(min(poll_s, left_s))
            poll_s = min(2 * poll_s, POLL_MAX_S)

    async def ledger(self) -> Ledger:
        """Totals of the tenant's writes, by how they ended."""
        return await self._get(Ledger, path("ledger"))

    async def dead_letters(self, *, page_size: int = 100) -> AsyncIterator[DeadLetter]:
        """All writes that failed too often, oldest first."""
        cursor = None
        while True:
            page = await self._get(DeadLetterPage, path("dead-letters"), given(limit=page_size, cursor=cursor))
            for item in page.items:
                yield item
            cursor = page.next_cursor
            if cursor is None:
                return

    async def replay(self, dead_letter_id: UUID | str) -> Operation:
        """Try a dead letter again; it is pending then."""
        return await self._post(Operation, path("dead-letters", dead_letter_id, "replay"), None, repeatable=False)

    async def drop(self, dead_letter_id: UUID | str) -> Operation:
        """Give a dead letter up: it counts as rejected, and its content goes."""
        return await self._delete(Operation, path("dead-letters", dead_letter_id))


def _operation_id(operation: str | Accepted | Operation) -> str:
    return operation if isinstance(operation, str) else operation.operation_id
