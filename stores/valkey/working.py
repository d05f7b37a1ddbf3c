"""Working memory: a session's messages, variables and reasoning state; published revisions; hot skills."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from configs.settings import WorkingMemorySettings
from memory.errors import InvalidInput
from memory.records import AgentId, MemoryId, Partition, TenantId, WorkingMemory, WorkingMessage
from stores.valkey import keys
from stores.valkey.codec import decode_message, dumps, encode_message
from stores.valkey.connection import Valkey, script, translated
from stores.valkey.keys import SessionKey

SKILLS_TTL_S = 3_600
REASONING = "r"
VARIABLE = "v:"  # prefix of a variable's field, beside the reasoning state's
_PARTS = ("messages", "variables", "meta", "left", "covered")  # the keys of a session


@dataclass(frozen=True, kw_only=True)
class Left:
    """What a running summary is made from."""

    messages: Sequence[WorkingMessage]  # oldest first
    summary: str | None  # of those before
    changes: int  # how often something was forgotten or changed


class WorkingMemoryStore:
    """Reads refresh the session's time to live."""

    def __init__(self, valkey: Valkey, settings: WorkingMemorySettings) -> None:
        self._valkey = valkey
        self._settings = settings
        self._set_fields = script("set_fields")
        self._forget = script("forget")
        self._put_skills = script("put_skills")
        self._summarise = script("summarize")

    async def get(self, key: SessionKey) -> WorkingMemory:
        """The session as it is; an unknown one is empty."""
        return (await self.get_with_revision(key))[0]

    async def get_with_revision(self, key: SessionKey) -> tuple[WorkingMemory, int]:
        """The same, and the agent's published revision, in one round trip."""
        session = keys.session(key)
        with translated():
            async with self._valkey.pipeline(transaction=True) as pipeline:
                pipeline.lrange(f"{session}:messages", 0, -1)
                pipeline.hgetall(f"{session}:variables")
                pipeline.hmget(f"{session}:meta", "spilled", "summary")
                for part in _PARTS:
                    pipeline.expire(f"{session}:{part}", self._settings.ttl_s)
                pipeline.get(keys.revision(key.partition, key.tenant_id, key.agent_id))
                messages, fields, (spilled, summary), *_, revision = await pipeline.execute()
        variables = {_text(name): json.loads(value) for name, value in fields.items()}
        working = WorkingMemory(
            messages=tuple(decode_message(message) for message in messages),
            variables={name.removeprefix(VARIABLE): v for name, v in variables.items() if name.startswith(VARIABLE)},
            reasoning=variables.get(REASONING),
            spilled=int(spilled or 0),
            summary=None if summary is None else _text(summary),
        )
        return working, int(revision or 0)

    async def set_variables(self, key: SessionKey, variables: Mapping[str, Any]) -> None:
        """Set some variables; the others stay. Raises ``InvalidInput`` when the session would exceed its bound."""
        if variables:
            await self._set(key, {f"{VARIABLE}{name}": value for name, value in variables.items()})

    async def delete_variables(self, key: SessionKey, names: Sequence[str]) -> int:
        """How many of them there were."""
        with translated():
            fields = [f"{VARIABLE}{name}" for name in names]
            return int(await self._valkey.hdel(f"{keys.session(key)}:variables", *fields))

    async def replace_reasoning(self, key: SessionKey, value: Any) -> None:
        """Replace the reasoning state. Raises ``InvalidInput`` when the session would exceed its bound."""
        await self._set(key, {REASONING: value})

    async def _set(self, key: SessionKey, fields: Mapping[str, Any]) -> None:
        session, limit = keys.session(key), self._settings.max_variables_bytes
        names = [f"{session}:variables", f"{session}:meta", f"{session}:messages", _sessions(key)]
        flat = [part for name, value in fields.items() for part in (name, dumps(value))]
        values = [limit, self._settings.ttl_s, session, *flat]
        with translated():
            size = int(await self._valkey.eval(self._set_fields, len(names), *names, *values))
        if size:
            raise InvalidInput(f"variables and reasoning state would take {size} bytes of {limit}; delete some first")

    async def end(self, key: SessionKey) -> bool:
        """Remove the session; whether there was one."""
        session = keys.session(key)
        with translated():
            async with self._valkey.pipeline(transaction=True) as pipeline:
                pipeline.delete(*_parts(session))
                pipeline.srem(_sessions(key), session)
                removed, _ = await pipeline.execute()
        return bool(removed)

    async def forget(
        self, *, tenant_id: TenantId, agent_id: AgentId, partition: Partition, ids: Sequence[MemoryId]
    ) -> None:
        """Remove messages from every session of the agent."""
        with translated():
            sessions = await self._valkey.smembers(keys.sessions(partition, tenant_id, agent_id))
            for session in sorted(_text(found) for found in sessions):
                names = _forgettable(session)
                await self._valkey.eval(self._forget, len(names), *names, "remove", "", *(each.hex for each in ids))

    async def forget_user(self, *, tenant_id: TenantId, agent_id: AgentId, user_id: str, partition: Partition) -> None:
        """Remove every session of one user of the agent."""
        prefix = keys.key(partition, "wm", tenant_id, agent_id, user_id) + ":"
        index = keys.sessions(partition, tenant_id, agent_id)
        with translated():
            found = [_text(session) for session in await self._valkey.smembers(index)]
            for session in (each for each in found if each.startswith(prefix)):
                await self._valkey.delete(*_parts(session))
                await self._valkey.srem(index, session)

    async def replace_message(self, key: SessionKey, memory_id: MemoryId, content: str) -> None:
        """Put new content into a message, if the session still holds it; a summary with the old content goes."""
        session, names = keys.session(key), _forgettable(keys.session(key))
        with translated():
            parts = [await self._valkey.lrange(f"{session}:{part}", 0, -1) for part in ("messages", "left")]
            held = [decode_message(_bytes(item)) for part in parts for item in part]
            bodies = [encode_message(replace(each, content=content)) for each in held if each.id == memory_id]
            # Without a body there is nothing to replace, and a summary may still hold the old one.
            verb, body = ("replace", bodies[0]) if bodies else ("remove", b"")
            await self._valkey.eval(self._forget, len(names), *names, verb, body, memory_id.hex)

    async def left(self, key: SessionKey) -> Left:
        """The messages that left the session and are in no summary yet."""
        session = keys.session(key)
        with translated():
            async with self._valkey.pipeline(transaction=True) as pipeline:
                pipeline.lrange(f"{session}:left", 0, -1)
                pipeline.hmget(f"{session}:meta", "summary", "changes")
                messages, (summary, changes) = await pipeline.execute()
        return Left(
            messages=tuple(decode_message(message) for message in messages),
            summary=None if summary is None else _text(summary),
            changes=int(changes or 0),
        )

    async def summarise(self, key: SessionKey, left: Left, summary: str, *, origin: str) -> bool:
        """Let ``summary`` take the place of ``left``; whether there is more to summarise.

        Nothing changes when a message was forgotten or changed since ``left`` was read, or the session ended.
        """
        session = keys.session(key)
        names = [f"{session}:meta", f"{session}:left", f"{session}:covered"]
        values: list[Any] = [left.changes, summary, origin, self._settings.ttl_s, self._settings.summary_after]
        values += [message.id.hex for message in left.messages]
        with translated():
            return bool(await self._valkey.eval(self._summarise, len(names), *names, *values))

    async def publish_revision(
        self, tenant_id: TenantId, agent_id: AgentId, partition: Partition, revision: int
    ) -> None:
        """Tell readers that the agent has reached ``revision``; a lower one than published changes nothing."""
        settle = script("settle")
        names = [keys.stream(partition), keys.operations(partition), keys.pending(partition)]
        names.append(keys.revision(partition, tenant_id, agent_id))
        with translated():
            await self._valkey.eval(settle, len(names), *names, "", 0, revision)

    async def revision(self, tenant_id: TenantId, agent_id: AgentId, partition: Partition) -> int:
        with translated():
            return int(await self._valkey.get(keys.revision(partition, tenant_id, agent_id)) or 0)

    async def get_skills(self, tenant_id: TenantId, agent_id: AgentId, partition: Partition) -> bytes | None:
        """The cached body, or ``None``."""
        with translated():
            body = await self._valkey.hget(keys.skills(partition, tenant_id, agent_id), "body")
        return None if body is None else _bytes(body)

    async def put_skills(
        self, tenant_id: TenantId, agent_id: AgentId, partition: Partition, body: bytes, *, revision: int
    ) -> None:
        """Cache ``body`` as of ``revision``; ignored when something newer was cached or dropped."""
        name = keys.skills(partition, tenant_id, agent_id)
        with translated():
            await self._valkey.eval(self._put_skills, 1, name, revision, body, SKILLS_TTL_S)

    async def drop_skills(self, tenant_id: TenantId, agent_id: AgentId, partition: Partition, *, revision: int) -> None:
        """Invalidate what was cached before ``revision``."""
        await self.put_skills(tenant_id, agent_id, partition, b"", revision=revision)


def _parts(session: str) -> list[str]:
    return [f"{session}:{part}" for part in _PARTS]


def _forgettable(session: str) -> list[str]:
    return [f"{session}:{part}" for part in ("messages", "meta", "left", "covered")]


def _sessions(key: SessionKey) -> str:
    return keys.sessions(key.partition, key.tenant_id, key.agent_id)


def _text(value: bytes | str) -> str:
    return value.decode() if isinstance(value, bytes) else value


def _bytes(value: bytes | str) -> bytes:
    return value.encode() if isinstance(value, str) else value
