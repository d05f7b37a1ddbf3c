"""The API as a Ray Serve application."""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable
from typing import Any

from fastapi import FastAPI
from ray import serve as ray_serve
from ray.serve import Application
from ray.serve._private import http_util
from ray.serve._private import replica as ray_replica

from configs.settings import Settings
from serve.app import build_app

NAME = "mnemoray"


class Api:
    """One replica. The application is built on the replica, from settings that travel with the deployment."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self._settings = Settings.model_validate(settings)
        bind_over_closed_connections()

    def __serve_build_asgi_app__(self) -> FastAPI:
        return build_app(self._settings)


def bind_over_closed_connections() -> None:
    """Let the replica of this process have its port although connections of a killed predecessor linger on it.

    Serve binds a replica's port without ``SO_REUSEADDR``, and blocks a port that it finds taken. For 60 s after a
    replica was killed under open connections, no other could serve its port; Serve offers no setting for that. Its
    ``SO_REUSEPORT`` would let two instances share a port, each with half of the other's requests.
    """
    vars(http_util)["set_socket_reuse_port"] = reuse_address
    names = vars(ray_replica)
    names["start_asgi_http_server"] = reusing(names["start_asgi_http_server"])


def reuse_address(listener: socket.socket) -> bool:
    """A port with nothing but closed connections on it can be bound, one where somebody listens cannot."""
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    return True


def reusing(start: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    """Serve's function that starts an HTTP server, its switch for reuse on."""

    async def start_reusing(*args: Any, **kwargs: Any) -> Any:
        return await start(*args, **kwargs | {"enable_so_reuseport": True})

    return start_reusing


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
