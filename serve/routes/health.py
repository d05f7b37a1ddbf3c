"""Health and metrics; neither needs a key."""

from __future__ import annotations

import asyncio
from typing import Any

from fastapi import APIRouter, Response

from memory.errors import Unavailable
from serve.dependencies import Open
from serve.services import Services
from stores.valkey import keys

router = APIRouter(tags=["health"])
CHECK_TIMEOUT_S = 2.0


@router.get("/health/live")
async def live() -> dict[str, str]:
    """The process answers. Touches nothing else."""
    return {"status": "live"}


@router.get("/health/ready", responses={503: {}})
async def ready(services: Open, response: Response) -> dict[str, Any]:
    """PostgreSQL and Valkey answer this replica."""
    names = ("postgresql", "valkey")
    results = await asyncio.gather(_check(_postgresql(services)), _check(services.streams.ping()))
    checks = dict(zip(names, results, strict=True))
    is_ready = all(result == "ok" for result in results)
    response.status_code = 200 if is_ready else 503
    return {"status": "ready" if is_ready else "not ready", "checks": checks}


async def _postgresql(services: Services) -> None:
    async with services.database.connection() as connection:
        await connection.execute("SELECT 1")


async def _check(probe: Any) -> str:
    try:
        await asyncio.wait_for(probe, CHECK_TIMEOUT_S)
    except (Unavailable, TimeoutError) as exc:
        return f"unavailable: {exc}"
    return "ok"


@router.get("/metrics", response_class=Response)
async def metrics(services: Open) -> Response:
    """Prometheus text format."""
    try:
        backlog = await services.streams.backlog(services.settings.partitions)
        extractions = await services.streams.backlog(services.settings.partitions, stream=keys.extractions)
        services.metrics.pending.set(backlog.entries)
        services.metrics.lag.set(backlog.oldest_age_s)
        services.metrics.extraction_pending.set(extractions.entries)
    except Unavailable:
        pass  # the other metrics are still worth scraping
    services.metrics.access_buffer.set(len(services.access))
    return Response(services.metrics.render(), media_type="text/plain; version=0.0.4")
