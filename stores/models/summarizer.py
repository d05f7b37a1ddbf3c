"""The Summarizer port over a language model, with a deadline and the extractive summary to fall back on."""

from __future__ import annotations

import asyncio
import logging
from contextlib import AsyncExitStack
from typing import Any

from configs.settings import ModelSettings
from memory.errors import InvalidOutput, MnemorayError
from memory.extraction import repeats
from memory.extractive import ExtractiveSummarizer
from memory.ports import Summarizer, TokenCounter
from stores.models.chat import ChatModel, Count
from stores.models.prompts import Prompt, load_prompt

logger = logging.getLogger(__name__)
FRAME_TOKENS = 100  # of a request, beside prompt and notes
MIN_WINDOW_TOKENS = 256


class ModelSummarizer:
    """Summaries by a model; what is late, empty, too long or a loop becomes an extractive summary."""

    def __init__(
        self, chat: ChatModel, prompt: Prompt, fallback: Summarizer, counter: TokenCounter, settings: ModelSettings
    ) -> None:
        self._chat = chat
        self._prompt = prompt
        self._fallback = fallback
        self._counter = counter
        self._settings = settings
        self.origin = f"{chat.model} {prompt.label}"

    async def summarize(self, text: str, *, query: str, max_tokens: int) -> str:
        """At most ``max_tokens`` tokens of the counter; may be ''. Never later than ``summary_deadline_s`` allows."""
        if max_tokens <= 0 or not text.strip():
            return ""
        try:
            async with asyncio.timeout(self._settings.summary_deadline_s):
                return await self._asked(text, query, max_tokens)
        except (MnemorayError, TimeoutError) as exc:
            logger.warning("a summary is extractive: %s", str(exc) or "the model was too slow")
            return await self._fallback.summarize(text, query=query, max_tokens=max_tokens)

    async def _asked(self, text: str, query: str, max_tokens: int) -> str:
        def parse(answer: str) -> str:
            summary = " ".join(answer.split())
            if repeats(summary):
                raise InvalidOutput("the summary says one thing over and over")
            if (tokens := self._counter.count(summary)) > max_tokens:
                raise InvalidOutput(f"the summary has {tokens} tokens, more than {max_tokens}")
            return summary

        system = f"{self._prompt.text}\n\nUse at most {max(1, max_tokens * 2 // 3)} words."
        return await self._chat.ask(
            system, self._data(text, query, system, max_tokens), parse=parse, max_tokens=max_tokens, attempts=1
        )

    def _data(self, text: str, query: str, system: str, max_tokens: int) -> dict[str, Any]:
        focus = self._counter.truncate(query, MIN_WINDOW_TOKENS)
        taken = self._counter.count(system) + self._counter.count(focus) + max_tokens + FRAME_TOKENS
        room = max(MIN_WINDOW_TOKENS, self._settings.context_window - taken)
        return {"focus": focus, "notes": self._counter.truncate(text, room)}


def open_summarizer(
    settings: ModelSettings, counter: TokenCounter, *, count: Count, stack: AsyncExitStack
) -> Summarizer:
    """The configured summarizer; ``stack`` closes it. Raises ``Misconfigured`` for a prompt that cannot be read."""
    extractive = ExtractiveSummarizer(counter)
    if settings.summarizer is None:
        return extractive
    chat = ChatModel(settings, settings.summarizer, count=count)
    stack.push_async_callback(chat.aclose)
    return ModelSummarizer(chat, load_prompt("summarize", folder=settings.prompts), extractive, counter, settings)
