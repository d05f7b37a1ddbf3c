"""An OpenAI-compatible server over HTTP: one request, and what its failures mean."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import httpx

from memory.errors import InvalidOutput, Misconfigured, Unavailable

_BUSY = (httpx.codes.REQUEST_TIMEOUT, httpx.codes.TOO_MANY_REQUESTS)


class Busy(Unavailable):
    """The server asks for patience."""

    def __init__(self, message: str, *, retry_after_s: float) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class Endpoint:
    """Close it with ``aclose()``. ``url`` ends in ``/v1``; ``timeout_s`` is for a whole request."""

    def __init__(self, url: str, *, api_key: str | None, timeout_s: float, concurrency: int) -> None:
        self.url = url.rstrip("/")
        self._timeout_s = timeout_s
        self._client = httpx.AsyncClient(
            base_url=f"{self.url}/",
            headers={"Authorization": f"Bearer {api_key}"} if api_key else {},
            timeout=timeout_s,
            limits=httpx.Limits(max_connections=concurrency),
        )

    async def aclose(self) -> None:
        await self._client.aclose()

    async def call(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Mapping[str, Any]:
        """The JSON object that the server answers.

        Raises ``Unavailable`` when it does not answer in time or cannot now (``Busy``), ``Misconfigured`` when it
        refuses the request for good, and ``InvalidOutput`` for an answer that is no JSON object.
        """
        try:
            async with asyncio.timeout(self._timeout_s):  # httpx limits the pauses, not the whole
                response = await self._client.request(method, path, json=body)
        except (httpx.HTTPError, httpx.InvalidURL, TimeoutError) as exc:
            raise Unavailable(f"{self.url} does not answer: {type(exc).__name__} {exc}") from exc
        if not response.is_success:
            raise self._refusal(path, response)
        try:
            found = response.json()
        except (ValueError, RecursionError) as exc:
            raise InvalidOutput(f"{self.url} answered no JSON: {exc}") from None
        if not isinstance(found, dict):
            raise InvalidOutput(f"{self.url} answered no JSON object")
        return found

    def _refusal(self, path: str, response: httpx.Response) -> Exception:
        reason = f"{self.url}/{path} answered {response.status_code}: {response.text[:300]}"
        # A model server answers in JSON; another 404 is of what stands before one that is not up yet.
        starts = response.status_code == httpx.codes.NOT_FOUND and "json" not in response.headers.get(
            "Content-Type", ""
        )
        if response.status_code in _BUSY or response.is_server_error or starts:
            return Busy(reason, retry_after_s=_retry_after(response))
        return Misconfigured(reason)


def _retry_after(response: httpx.Response) -> float:
    """Seconds; the header's other form, a date, is passed over."""
    value = response.headers.get("Retry-After", "")
    return float(value) if value.isascii() and value.isdecimal() else 0.0
