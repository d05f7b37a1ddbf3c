"""Skills and the settings of agents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from mnemoray._async.verbs import AsyncVerbs
from mnemoray._codec import given
from mnemoray._request import path
from mnemoray.results import Agent, Skill, SkillList


class AsyncSkills(AsyncVerbs):
    """Procedural memory, and the agent that has it."""

    async def skills(self, *, agent_id: str, user_id: str | None = None) -> Sequence[Skill]:
        """An agent's skills by proven reliability; with a user, that user's own beside them."""
        return (await self._get(SkillList, path("agents", agent_id, "skills"), given(user_id=user_id))).items

    async def skill(self, name: str, *, agent_id: str, user_id: str | None = None) -> Skill:
        return await self._get(Skill, path("agents", agent_id, "skills", name), given(user_id=user_id))

    async def put_skill(
        self,
        name: str,
        *,
        agent_id: str,
        trigger_pattern: str,
        policy: Mapping[str, Any],
        tool_sequence: Sequence[Any] | None = None,
        user_id: str | None = None,
    ) -> Skill:
        """Create or replace a skill; its outcome counts stay."""
        body = given(trigger_pattern=trigger_pattern, policy=policy, tool_sequence=tool_sequence, user_id=user_id)
        return await self._put(Skill, path("agents", agent_id, "skills", name), body)

    async def record_outcome(
        self,
        name: str,
        outcome: Literal["success", "failure"],
        *,
        agent_id: str,
        reward: float | None = None,
        user_id: str | None = None,
    ) -> Skill:
        """Count a success or a failure. Not repeated after a lost answer: it would count twice."""
        body = given(outcome=outcome, reward=reward, user_id=user_id)
        return await self._post(Skill, path("agents", agent_id, "skills", name, "outcomes"), body, repeatable=False)

    async def agent(self, agent_id: str) -> Agent:
        return await self._get(Agent, path("agents", agent_id))

    async def put_agent(
        self,
        agent_id: str,
        *,
        team: str | None = None,
        scoring: Mapping[str, float] | None = None,
        budget_ratios: Mapping[str, float] | None = None,
        retention: Mapping[str, str] | None = None,
    ) -> Agent:
        """Replace an agent's settings; what is left out follows the server's defaults."""
        body = given(team=team, scoring=scoring, budget_ratios=budget_ratios, retention=retention)
        return await self._put(Agent, path("agents", agent_id), body)
