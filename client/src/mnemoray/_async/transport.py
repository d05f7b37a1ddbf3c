"""Sends requests, and repeats those that may be repeated."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx

from mnemoray._config import Endpoint
from mnemoray._request import Request, answer, connection_failed
from mnemoray._retry import RetryPolicy
from mnemoray.errors import MnemorayError

CONNECT_TIMEOUT_S = 5.0


class AsyncTransport:
    """One connection pool to one API."""

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        timeout_s: float,
        retry: RetryPolicy,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._base_url = endpoint.base_url
        self._retry = retry
        self._http = httpx.AsyncClient(
            headers={"Authorization": f"Bearer {endpoint.api_key}", "Accept": "application/json"},
            timeout=httpx.Timeout(timeout_s, connect=min(CONNECT_TIMEOUT_S, timeout_s)),
            transport=transport,
        )

    async def send(self, request: Request) -> Any:
        """The JSON that answers the request, after as many attempts as the policy allows."""
        attempt = 0
        while True:
            attempt += 1
            try:
                return await self._attempt(request)
            except MnemorayError as error:
                delay_s = self._retry.delay_s(error, attempt, repeatable=request.repeatable)
                if delay_s is None:
                    raise
            await pause(delay_s)

    async def _attempt(self, request: Request) -> Any:
        try:
            response = await self._http.request(
                request.method, self._base_url + request.path, params=request.params, json=request.body
            )
        except httpx.TransportError as exc:
            raise connection_failed(exc, self._base_url) from exc
        return answer(response)

    async def aclose(self) -> None:
        await self._http.aclose()


async def pause(delay_s: float) -> None:
    await asyncio.sleep(delay_s)
