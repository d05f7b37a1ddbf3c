"""Sessions: working memory."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from mnemoray._async.verbs import AsyncVerbs
from mnemoray._codec import encode, given, keyed
from mnemoray._request import path
from mnemoray.inputs import Durability, NewMemory, Role, Trust, Wait
from mnemoray.results import Accepted, Deleted, Session


class AsyncSessions(AsyncVerbs):
    """Working memory of one conversation."""

    async def session(self, session_id: str, *, agent_id: str, user_id: str) -> Session:
        """Messages, variables and reasoning state; empty for a session that never was or has ended."""
        return await self._get(Session, _session(agent_id, session_id), {"user_id": user_id})

    async def append_message(
        self,
        content: str,
        *,
        agent_id: str,
        user_id: str,
        session_id: str,
        role: Role = "user",
        speaker: str | None = None,
        trust: Trust | None = None,
        occurred_at: datetime | None = None,
        metadata: Mapping[str, Any] | None = None,
        infer: bool = True,
        idempotency_key: str | None = None,
        wait: Wait = "accepted",
        durability: Durability = "default",
    ) -> Accepted:
        """Append a message to a session; it becomes an episode too."""
        memory = NewMemory(
            content=content,
            user_id=user_id,
            session_id=session_id,
            role=role,
            speaker=speaker,
            trust=trust,
            occurred_at=occurred_at,
            metadata=metadata or {},
            infer=infer,
            idempotency_key=idempotency_key,
        )
        body = {**encode(keyed(memory)), "wait": wait, "durability": durability}
        return await self._post(Accepted, _session(agent_id, session_id, "messages"), body, repeatable=True)

    async def set_variables(
        self, session_id: str, variables: Mapping[str, Any], *, agent_id: str, user_id: str
    ) -> Session:
        """Set variables; the others stay."""
        at, body = _session(agent_id, session_id, "variables"), given(variables=variables)
        return await self._patch(Session, at, body, {"user_id": user_id})

    async def delete_variable(self, session_id: str, name: str, *, agent_id: str, user_id: str) -> Deleted:
        return await self._delete(Deleted, _session(agent_id, session_id, "variables", name), {"user_id": user_id})

    async def set_reasoning(self, session_id: str, reasoning: Any, *, agent_id: str, user_id: str) -> Session:
        """Replace the intermediate reasoning state, any JSON value."""
        at, body = _session(agent_id, session_id, "reasoning"), {"reasoning": encode(reasoning)}
        return await self._put(Session, at, body, {"user_id": user_id})

    async def end_session(self, session_id: str, *, agent_id: str, user_id: str) -> Deleted:
        """End a session: its working memory goes, its episodes stay."""
        return await self._delete(Deleted, _session(agent_id, session_id), {"user_id": user_id})


def _session(agent_id: str, session_id: str, *more: str) -> str:
    return path("agents", agent_id, "sessions", session_id, *more)
