"""What an agent believes: a fact that is stored meets those that are current about the same subject."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from psycopg.types.json import Jsonb

from memory.contradiction import Statement, Verdict, judge
from stores.postgres import queries
from stores.postgres.database import Connection

_SQL = queries.load("beliefs")
_MEMORIES, _WRITES = queries.load("memories"), queries.load("writes")
Row = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Meeting:
    """How a new fact stands to the current ones."""

    same: UUID | None = None  # says the same already
    superseded: Sequence[Row] = ()
    yields: bool = False  # something current is newer or more certain


async def meet(connection: Connection, values: Mapping[str, Any], *, correction: bool) -> Meeting:
    """Judge a fact that is about to be stored, under its agent's lock.

    ``values`` are those of its row: tenant_id, namespace_id, placement, subject, predicate, object, confidence,
    valid_from, content_hash. A fact without subject or predicate contradicts nothing.
    """
    if not values["subject"] or not values["predicate"]:
        return Meeting()
    new = _statement(values)
    current = await (await connection.execute(_SQL["facts_about"], values)).fetchall()
    judged = [(row, judge(new, _statement(row), correction=correction)) for row in current]
    same = [row for row, verdict in judged if verdict is Verdict.SAME]
    return Meeting(
        same=max(same, key=lambda row: (row["confidence"], row["id"]))["id"] if same else None,
        superseded=[row for row, verdict in judged if verdict is Verdict.SUPERSEDES],
        yields=any(verdict is Verdict.YIELDS for _, verdict in judged),
    )


async def confirm(connection: Connection, fact_id: UUID, values: Mapping[str, Any]) -> None:
    """A current fact was said again in other words."""
    await connection.execute(_SQL["confirm"], {**values, "id": fact_id})


async def settle(connection: Connection, fact_id: UUID, values: Mapping[str, Any], meeting: Meeting) -> None:
    """After the fact is stored: retire those whose place it takes, or the fact itself where it came too late."""
    if meeting.yields:
        await _retire(connection, values, [fact_id])
    elif meeting.superseded:
        olds = [row["id"] for row in meeting.superseded]
        await _retire(connection, values, olds)
        await connection.execute(_SQL["supersedes"], {**values, "id": fact_id, "old": olds[0]})
        for row in meeting.superseded:
            change = {"event": "superseded", "memory_id": row["id"]}
            texts = {"before": Jsonb({"content": row["fact"]}), "after": Jsonb({"superseded_by": str(fact_id)})}
            await connection.execute(_MEMORIES["add_history"], {**values, **change, **texts})


async def _retire(connection: Connection, values: Mapping[str, Any], ids: Sequence[UUID]) -> None:
    await connection.execute(_SQL["retire"], {**values, "ids": list(ids)})
    await connection.execute(_WRITES["count_fact"], {"namespace_id": values["namespace_id"], "added": -len(ids)})


def _statement(row: Mapping[str, Any]) -> Statement:
    return Statement(
        subject=row["subject"],
        predicate=row["predicate"] or "",
        object=row["object"] or "",
        confidence=row["confidence"],
        valid_from=row["valid_from"],
    )
