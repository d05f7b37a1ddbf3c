"""The Ray actor around a shard."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from typing import Any

import ray
from ray.util.metrics import Counter

from actors.service import ShardService
from configs.settings import Settings
from memory.rules import RuleClassifier
from stores.models.chat import Count
from stores.models.embedder import open_embedder

logger = logging.getLogger(__name__)
NAMESPACE = "mnemoray"


def shard_name(index: int) -> str:
    return f"shard-{index}"


class AgentShard:
    """Owns a set of partitions. Ray restarts it; PostgreSQL and Valkey hold everything it needs to go on.

    The work runs in an event loop of its own, started by the constructor, because Ray calls nothing but the
    constructor after a restart.
    """

    def __init__(self, name: str, settings: dict[str, Any]) -> None:
        configured = Settings.model_validate(settings)
        logging.basicConfig(level=configured.log_level.upper())
        embedder = open_embedder(configured.embedding)
        self._service = ShardService(
            name, configured, embedder=embedder, classifier=RuleClassifier(), count=_attempts()
        )
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def _run(self) -> None:
        try:
            asyncio.run(self._service.run())
        except BaseException:
            logger.exception("the shard stops; Ray starts it again")
            os._exit(1)

    def owned(self) -> list[int]:
        """The partitions that this shard consumes now."""
        return self._service.owned()

    def pid(self) -> int:
        return os.getpid()


def _attempts() -> Count:
    """A counter among Ray's metrics: how the attempts at language models ended."""
    counter = Counter(
        "mnemoray_model_attempts", "Requests to language models, by outcome", tag_keys=("model", "outcome")
    )
    return lambda model, outcome: counter.inc(tags={"model": model, "outcome": outcome})


def ensure_shard(name: str, settings: Settings) -> Any:
    """The named, detached actor; created when it does not exist yet. Connect to Ray first."""
    actor = ray.remote(AgentShard).options(
        name=name,
        namespace=NAMESPACE,
        lifetime="detached",
        get_if_exists=True,
        max_restarts=-1,
        max_task_retries=-1,
        scheduling_strategy="SPREAD",
        num_cpus=1,
    )
    return actor.remote(name, settings.model_dump(mode="json"))
