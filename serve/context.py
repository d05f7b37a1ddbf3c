"""Context assembly: hits packed into a token budget, as items and as ready-to-send messages."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from memory import echo
from memory.packing import BudgetRatios, Context, PackPlan, TokenBudget, assemble, plan
from memory.phrasing import context_text
from memory.ports import Summarizer, TokenCounter
from memory.records import Tier
from memory.scoring import Hit
from serve.schemas import Message

#: Headings of the memory sections in the system message. What stands under them is data, and says so.
HEADINGS: Mapping[Tier, str] = {
    Tier.SEMANTIC: echo.FACTS,
    Tier.EPISODIC: echo.EPISODES,
    Tier.PROCEDURAL: echo.SKILLS,
}
EARLIER_SHARE = 0.25  # of working memory's tokens: the most that a running summary takes from what was said since
MESSAGE_OVERHEAD = 4  # tokens that a chat format adds to a message


def framing_tokens(counter: TokenCounter) -> int:
    """The most that preamble, headings and the system message's own frame can cost."""
    lines = [echo.PREAMBLE, f"{echo.EARLIER}:\n- ", *HEADINGS.values()]
    return sum(counter.count(f"\n\n{line}:\n") + 1 for line in lines) + MESSAGE_OVERHEAD


class ContextBuilder:
    """Packs ranked hits for one request."""

    def __init__(self, counter: TokenCounter, summarizer: Summarizer) -> None:
        self._counter = counter
        self._summarizer = summarizer

    async def build(
        self,
        hits: Sequence[Hit],
        *,
        budget: int,
        ratios: BudgetRatios,
        hand_over: bool,
        query: str,
        earlier: str | None = None,
    ) -> Context:
        """Never above ``budget`` tokens, framing included; ``earlier`` is the running summary of the session."""
        room = max(0, budget - framing_tokens(self._counter))
        summary = await self._earlier(earlier, math.floor(room * ratios.working * EARLIER_SHARE), query)
        taken = self._counter.count(summary)
        room -= taken
        plan_ = plan(hits, room, ratios, self._cost, hand_over=hand_over, overhead=MESSAGE_OVERHEAD)
        texts = await asyncio.gather(*(self._text(plan_, index, query) for index in range(len(plan_.items))))
        context = assemble(plan_, texts, self._counter.count)
        return replace(context, earlier=summary, budget=context.budget + taken, used=context.used + taken)

    async def _earlier(self, summary: str | None, limit: int, query: str) -> str:
        if not summary or self._counter.count(_indented(summary)) <= limit:
            return _indented(summary or "")
        return await self._summarizer.summarize(summary, query=query, max_tokens=limit)

    def _cost(self, text: str) -> int:
        return self._counter.count(text)

    async def _text(self, plan_: PackPlan, index: int, query: str) -> str:
        item = plan_.items[index]
        text = context_text(item.hit.memory)
        if item.fit is None:
            return text
        return await self._summarizer.summarize(text, query=query, max_tokens=item.fit)


def available_tokens(counter: TokenCounter, *, window: int, system_prompt: str, query: str, output_reserve: int) -> int:
    budget = TokenBudget(
        window=window,
        system_tokens=counter.count(system_prompt),
        query_tokens=counter.count(query),
        output_reserve=output_reserve,
    )
    return budget.available


def messages_of(context: Context, *, system_prompt: str, query: str) -> list[Message]:
    """System prompt with the recalled memories, the session's messages in order, then the query."""
    system = "\n\n".join(part for part in (system_prompt, _sections(context)) if part)
    session = [
        Message(role=_chat_role(item.hit), content=item.text)
        for item in context.items
        if item.hit.memory.tier is Tier.WORKING
    ]
    head = [Message(role="system", content=system)] if system else []
    return [*head, *session, Message(role="user", content=query)]


def _sections(context: Context) -> str:
    sections = [f"{echo.EARLIER}:\n- {context.earlier}"] if context.earlier else []
    for tier, heading in HEADINGS.items():
        lines = [f"- {item.text}" for item in context.items if item.hit.memory.tier is tier]
        if lines:
            sections.append(f"{heading}:\n" + "\n".join(lines))
    return "\n\n".join([echo.PREAMBLE, *sections]) if sections else ""


def _indented(text: str) -> str:
    return "\n  ".join(text.splitlines())


def _chat_role(hit: Hit) -> str:
    """A stored message never speaks with the system's voice."""
    return "assistant" if hit.memory.details.get("role") == "assistant" else "user"
