"""What all groups of verbs share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from mnemoray._async.transport import AsyncTransport
from mnemoray._codec import decode
from mnemoray._request import Request

T = TypeVar("T")


class AsyncVerbs:
    """Sends a request and types its answer."""

    _transport: AsyncTransport

    async def _get(self, kind: type[T], path: str, params: Mapping[str, Any] | None = None) -> T:
        return decode(kind, await self._transport.send(Request(method="GET", path=path, params=params or {})))

    async def _post(self, kind: type[T], path: str, body: Mapping[str, Any] | None, *, repeatable: bool) -> T:
        request = Request(method="POST", path=path, body=body, repeatable=repeatable)
        return decode(kind, await self._transport.send(request))

    async def _put(
        self, kind: type[T], path: str, body: Mapping[str, Any], params: Mapping[str, Any] | None = None
    ) -> T:
        request = Request(method="PUT", path=path, body=body, params=params or {})
        return decode(kind, await self._transport.send(request))

    async def _patch(
        self, kind: type[T], path: str, body: Mapping[str, Any], params: Mapping[str, Any] | None = None
    ) -> T:
        request = Request(method="PATCH", path=path, body=body, params=params or {})
        return decode(kind, await self._transport.send(request))

    async def _delete(
        self, kind: type[T], path: str, params: Mapping[str, Any] | None = None, *, repeatable: bool = False
    ) -> T:
        """Not repeatable: after a lost answer, the repetition of a deletion that worked would say 404."""
        request = Request(method="DELETE", path=path, params=params or {}, repeatable=repeatable)
        return decode(kind, await self._transport.send(request))
