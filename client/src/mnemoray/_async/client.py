"""The client."""

from __future__ import annotations

from types import TracebackType
from typing import Self

import httpx

from mnemoray._async.memories import AsyncMemories
from mnemoray._async.operations import AsyncOperations
from mnemoray._async.quarantine import AsyncQuarantine
from mnemoray._async.sessions import AsyncSessions
from mnemoray._async.skills import AsyncSkills
from mnemoray._async.transport import AsyncTransport
from mnemoray._config import endpoint
from mnemoray._retry import RetryPolicy


class AsyncMnemoray(AsyncMemories, AsyncQuarantine, AsyncSessions, AsyncSkills, AsyncOperations):
    """Everything that the API of Mnemoray offers.

    What is not given comes from the environment: MNEMORAY_URL and MNEMORAY_API_KEY. Use it as a context
    manager, or close it yourself. Requests are repeated as ``retry`` says, and only where that is safe.
    """

    def __init__(
        self,
        base_url: str | None = None,
        api_key: str | None = None,
        *,
        timeout_s: float = 30.0,
        retry: RetryPolicy | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._transport = AsyncTransport(
            endpoint(base_url, api_key), timeout_s=timeout_s, retry=retry or RetryPolicy(), transport=transport
        )

    async def aclose(self) -> None:
        """Close the connections."""
        await self._transport.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()
