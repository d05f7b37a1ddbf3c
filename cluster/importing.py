"""Sending many writes, and following each to its end.

Every item ends in one of ``Counts``: stored, duplicate, rejected, dead-lettered, refused by the API, or still pending
when the time was up. Nothing is kept here between runs: idempotency keys make a second run continue the first.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from cluster.api import RETRY_AFTER_S, Api, path, wait
from memory.errors import Backpressure, NotFound
from pipelines.conversations import WriteItem, is_import_key

BATCH_ITEMS = 100
BATCH_BYTES = 1_000_000  # far below what the API takes in one body
STALLS = 60  # batches in a row of which nothing was accepted, a second apart
POLL_S = 0.5
POLLERS = 8
_PASSING = (429, 503)
_CONFLICT = 409
_STALLED = "no write was accepted for a minute; see 'mnemoray status', then run the import again to continue"

Progress = Callable[[int], None]  # told how many more items are through


@dataclass(frozen=True, slots=True)
class Sent:
    """An item that the API accepted."""

    item: WriteItem
    operation_id: str
    duplicate: bool  # accepted before under the same idempotency key


@dataclass(frozen=True, slots=True)
class Failure:
    """An item that is not stored, and why."""

    place: str
    state: str  # refused, rejected, dead_lettered or pending
    reason: str
    operation_id: str | None = None


@dataclass(slots=True)
class Tally:
    """How the items ended so far."""

    counts: Counter[str] = field(default_factory=Counter)
    failures: list[Failure] = field(default_factory=list)

    def fail(self, item: WriteItem, state: str, reason: str, operation_id: str | None = None) -> None:
        self.counts[state] += 1
        self.failures.append(Failure(str(item.place), state, reason, operation_id))


def batches(items: Iterable[WriteItem]) -> Iterator[list[WriteItem]]:
    """Consecutive items of one agent, bounded in number and bytes."""
    batch: list[WriteItem] = []
    size = 0
    for item in items:
        length = len(json.dumps(item.body))
        full = len(batch) == BATCH_ITEMS or size + length > BATCH_BYTES
        if batch and (full or batch[0].agent_id != item.agent_id):
            yield batch
            batch, size = [], 0
        batch.append(item)
        size += length
    if batch:
        yield batch


def send(api: Api, batch: Sequence[WriteItem], tally: Tally) -> list[Sent]:
    """Send one batch. Items that a full partition refused are sent again; after that long a stall, it raises."""
    sent: list[Sent] = []
    left, stalls = list(batch), 0
    while left:
        results = _post(api, left)
        accepted = [_sent(item, result["accepted"]) for item, result in results if result.get("accepted")]
        left = _refused(results, tally)
        sent += accepted
        stalls = 0 if accepted else stalls + 1
        if left and stalls == STALLS:
            raise Backpressure(f"{left[0].place}: {_STALLED}", retry_after_s=RETRY_AFTER_S)
        if left:
            wait(RETRY_AFTER_S)
    return sent


def _refused(results: Sequence[tuple[WriteItem, dict[str, Any]]], tally: Tally) -> list[WriteItem]:
    """The items to send again; the other refused ones are tallied."""
    again: list[WriteItem] = []
    for item, problem in [(item, result["problem"]) for item, result in results if result.get("problem")]:
        if problem["status"] in _PASSING:
            again.append(item)
        elif problem["status"] == _CONFLICT and is_import_key(item.body["idempotency_key"]):
            tally.counts["duplicate"] += 1  # imported before, with other options
        else:
            tally.fail(item, "refused", problem["detail"])
    return again


def _post(api: Api, batch: Sequence[WriteItem]) -> list[tuple[WriteItem, dict[str, Any]]]:
    body = {"items": [item.body for item in batch]}
    answer = api.post(path("agents", batch[0].agent_id, "memories", "batch"), body)
    return list(zip(batch, answer["items"], strict=True))


def _sent(item: WriteItem, accepted: dict[str, Any]) -> Sent:
    return Sent(item, accepted["operation_id"], bool(accepted.get("duplicate")))


def settle(api: Api, sent: Sequence[Sent], tally: Tally, *, timeout_s: float, progress: Progress) -> None:
    """Wait until every accepted item ended, and tally how; what is pending when the time is up is tallied so."""
    deadline = time.monotonic() + timeout_s
    with ThreadPoolExecutor(POLLERS) as pollers:
        for start in range(0, len(sent), BATCH_ITEMS):
            pending: list[Sent] = list(sent[start : start + BATCH_ITEMS])
            while pending := _still_pending(api, pollers, pending, tally, progress):
                if time.monotonic() >= deadline:
                    break
                wait(POLL_S)
            for one in pending:
                tally.fail(one.item, "pending", "not settled yet; run the import again to see", one.operation_id)


def _still_pending(
    api: Api, pollers: ThreadPoolExecutor, asked: Sequence[Sent], tally: Tally, progress: Progress
) -> list[Sent]:
    found = list(zip(asked, pollers.map(lambda one: _operation(api, one), asked), strict=True))
    settled = [(one, operation) for one, operation in found if operation["state"] != "pending"]
    for one, operation in settled:
        _tally(one, operation, tally)
    progress(len(settled))
    return [one for one, operation in found if operation["state"] == "pending"]


def _operation(api: Api, one: Sent) -> dict[str, Any]:
    try:
        found: dict[str, Any] = api.get(path("operations", one.operation_id))
    except NotFound as exc:
        return {"state": "rejected", "reason": f"the API does not know this write any more: {exc}"}
    return found


def _tally(one: Sent, operation: dict[str, Any], tally: Tally) -> None:
    state = operation["state"]
    if state in ("stored", "duplicate"):
        tally.counts["duplicate" if one.duplicate else state] += 1
    else:
        tally.fail(one.item, state, operation.get("reason") or "no reason given", one.operation_id)
