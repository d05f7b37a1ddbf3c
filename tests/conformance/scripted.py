"""An OpenAI-compatible server on loopback that misbehaves as it is told. No real engine does so on demand."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import uvicorn
from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse

MODEL = "scripted"


@dataclass
class Answer:
    """One answer: the words of the model, or a raw body."""

    text: str | None = None
    status: int = 200
    finish_reason: str = "stop"
    raw: bytes | None = None
    media_type: str = "application/json"
    delay_s: float = 0.0
    headers: dict[str, str] = field(default_factory=dict)

    def response(self) -> Response:
        if self.raw is not None:
            return Response(self.raw, self.status, self.headers, media_type=self.media_type)
        message = {"role": "assistant", "content": self.text}
        body = {"choices": [{"index": 0, "message": message, "finish_reason": self.finish_reason}]}
        return JSONResponse(body, self.status, self.headers)


@dataclass
class Script:
    """What the server does; the last answer repeats. A function answers by the request's data."""

    answers: list[Answer | Callable[[dict[str, Any]], Answer]] = field(default_factory=list)
    requests: list[dict[str, Any]] = field(default_factory=list)
    url: str = ""
    busy: int = 0
    most_busy: int = 0


@asynccontextmanager
async def scripted(*answers: Answer | Callable[[dict[str, Any]], Answer], port: int = 0) -> AsyncIterator[Script]:
    script = Script(list(answers))
    app = FastAPI()

    @app.get("/v1/models")
    async def models() -> dict[str, Any]:
        return {"data": [{"id": MODEL}]}

    @app.post("/v1/chat/completions")
    async def complete(request: Request) -> Response:
        body = await request.json()
        script.requests.append(body)
        answer = script.answers[min(len(script.requests), len(script.answers)) - 1]
        answer = answer(body) if callable(answer) else answer
        script.busy += 1
        script.most_busy = max(script.busy, script.most_busy)
        await asyncio.sleep(answer.delay_s)
        script.busy -= 1
        return answer.response()

    @app.post("/v1/embeddings")
    async def embed(request: Request) -> Response:
        body = await request.json()
        script.requests.append(body)
        answer = script.answers[min(len(script.requests), len(script.answers)) - 1]
        return (answer(body) if callable(answer) else answer).response()

    server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=port, log_level="error", lifespan="off"))
    task = asyncio.create_task(server.serve())
    while not server.started:  # noqa: ASYNC110 - uvicorn has no event for it
        await asyncio.sleep(0.01)
    script.url = f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}/v1"
    try:
        yield script
    finally:
        server.should_exit = True
        server.force_exit = True
        await task
