"""The OpenAI-compatible ingress. Runs in ``.venv-llm`` only."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Any

from fastapi import HTTPException
from ray import serve as ray_serve
from ray.serve.llm.ingress import OpenAiIngress

APPLICATION = "models"
STATUS_AGE_S = 1.0
RUNNING = "RUNNING"


class Ingress(OpenAiIngress):
    """Answers 503 while a model has no replica.

    Ray's own holds a request until there is one, which takes minutes for a large model; the caller has something
    better to do meanwhile.
    """

    def __init__(self, *arguments: Any, expected: Mapping[str, str], **more: Any) -> None:
        super().__init__(*arguments, **more)
        self._expected = dict(expected)  # deployments, by model, that always have a replica
        self._running: dict[str, int] = {}
        self._asked = 0.0

    async def _get_model_id(self, model: str | None) -> str:
        found: str = await super()._get_model_id(model)
        deployment = self._expected.get(found)
        if deployment is not None and not await self._replicas(deployment):
            raise HTTPException(503, f"the model {found} is not loaded yet", headers={"Retry-After": "5"})
        return found

    async def _replicas(self, deployment: str) -> int:
        if time.monotonic() - self._asked > STATUS_AGE_S:
            self._asked = time.monotonic()
            self._running = await asyncio.to_thread(_running)
        return self._running.get(deployment, 0)


def _running() -> dict[str, int]:
    """How many replicas of each deployment run."""
    application = ray_serve.status().applications.get(APPLICATION)
    deployments = {} if application is None else application.deployments
    return {
        name: sum(count for state, count in found.replica_states.items() if state == RUNNING)
        for name, found in deployments.items()
    }
