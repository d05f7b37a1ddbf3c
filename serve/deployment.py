"""The API as a Ray Serve application."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from ray import serve as ray_serve
from ray.serve import Application

from configs.settings import Settings
from serve.app import build_app

NAME = "mnemoray"


class Api:
    """One replica. The application is built on the replica, from settings that travel with the deployment."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self._settings = Settings.model_validate(settings)

    def __serve_build_asgi_app__(self) -> FastAPI:
        return build_app(self._settings)


def build_application(settings: Settings) -> Application:
    """The Serve application for ``settings``: direct ingress, no Ray hop between a request and its answer."""
    deployment = ray_serve.deployment(
        name="Api",
        num_replicas=settings.serve.replicas,
        max_ongoing_requests=1000,
        max_queued_requests=-1,
        ray_actor_options={"num_cpus": 1},
        health_check_period_s=2,
        health_check_timeout_s=10,
        graceful_shutdown_timeout_s=5,
    )(ray_serve.ingress()(Api))
    return deployment.bind(settings.model_dump(mode="json"))
