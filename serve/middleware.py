"""ASGI middleware: bounded bodies, ids with slashes, and request metrics."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from urllib.parse import unquote

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from serve.metrics import Metrics
from serve.problems import problem, response


class BoundedBody:
    """Answers 413 to a body above the limit, whether or not its length was announced."""

    def __init__(self, app: ASGIApp, *, max_bytes: int) -> None:
        self._app = app
        self._max_bytes = max_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        body = await self._read(scope, receive)
        if body is None:
            detail = f"the body exceeds {self._max_bytes} bytes; send smaller batches"
            await response(problem(413, "body_too_large", detail))(scope, receive, send)
            return
        await self._app(scope, _replay(body, receive), send)

    async def _read(self, scope: Scope, receive: Receive) -> bytes | None:
        """The whole body; ``None`` when it is too large."""
        announced = dict(scope["headers"]).get(b"content-length", b"0")
        if announced.isdigit() and int(announced) > self._max_bytes:
            return None
        body = bytearray()
        while True:
            message = await receive()
            body += message.get("body", b"")
            if len(body) > self._max_bytes:
                return None
            if not message.get("more_body", False):
                return bytes(body)


def _replay(body: bytes, receive: Receive) -> Receive:
    """Hand the body out once, then what the server has to say (a disconnect)."""
    sent = False

    async def replay() -> Message:
        nonlocal sent
        if sent:
            return await receive()
        sent = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay


class WholeSegments:
    """Keeps an encoded slash inside its path segment, so that an id may contain one.

    Routing sees the decoded path. A slash or per cent sign that was encoded stays encoded there, and
    ``decode_segment`` undoes it for the one parameter.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        raw = scope.get("raw_path")
        if scope["type"] == "http" and raw and b"%" in raw:
            kept = raw.split(b"?")[0].replace(b"%25", b"%2525").replace(b"%2F", b"%252F").replace(b"%2f", b"%252F")
            scope = {**scope, "path": unquote(kept.decode("latin-1"))}
        await self._app(scope, receive, send)


def decode_segment(value: object) -> object:
    """Undo what ``WholeSegments`` kept encoded."""
    return value.replace("%2F", "/").replace("%25", "%") if isinstance(value, str) else value


class Measured:
    """Counts requests and their seconds by route template and status."""

    def __init__(self, app: ASGIApp, *, metrics_of: Callable[[], Metrics]) -> None:
        self._app = app
        self._metrics_of = metrics_of

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started, status = perf_counter(), 500

        async def observe(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, observe)
        finally:
            route = getattr(scope.get("route"), "path_format", "unmatched")
            self._metrics_of().observe_request(scope["method"], route, status, perf_counter() - started)
