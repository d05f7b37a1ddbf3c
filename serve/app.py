"""The ASGI application of one API replica."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from importlib.metadata import version
from typing import Any

from fastapi import FastAPI

from configs.settings import Settings
from serve import problems
from serve.middleware import BoundedBody, Measured, WholeSegments
from serve.routes import agents, health, memories, operations, quarantine, search, sessions, skills, tenant
from serve.schemas import Problem
from serve.services import open_services

DESCRIPTION = """
A memory layer for AI agents: working, episodic, semantic and procedural memory, ranked recall, and contexts that
fit a token budget. Errors are RFC 9457 problem details with a stable `code`. An id in a path is percent-encoded as a
whole, slashes included. Timestamps are RFC 3339 with an offset.
"""


def build_app(settings: Settings) -> FastAPI:
    """An application that opens its services when it starts and closes them when it stops."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            services = await open_services(settings, stack)
            app.state.services = services
            yield

    errors: dict[int | str, dict[str, Any]] = {
        status: {"model": Problem} for status in (401, 403, 404, 409, 413, 422, 429, 503)
    }
    app = FastAPI(
        title="Mnemoray",
        version=version("mnemoray-cluster"),
        description=DESCRIPTION,
        lifespan=lifespan,
    )
    for noun in (search, memories, quarantine, sessions, skills, agents, operations, tenant):
        app.include_router(noun.router, responses=errors)
    app.include_router(health.router)
    problems.install(app)
    app.add_middleware(BoundedBody, max_bytes=settings.serve.max_body_bytes)
    app.add_middleware(Measured, metrics_of=lambda: app.state.services.metrics)
    app.add_middleware(WholeSegments)
    return app
