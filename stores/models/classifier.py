"""The Classifier port over a language model."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from configs.settings import ModelSettings
from memory import extraction
from memory.echo import without_recalled
from memory.errors import MnemorayError
from memory.ports import Classifier, TokenCounter
from memory.records import Classification, Interaction
from stores.models.chat import ChatModel
from stores.models.prompts import Prompt

logger = logging.getLogger(__name__)
FRAME_TOKENS = 200  # of a request, beside prompt and text: field names, chat template


class ModelClassifier:
    """One schema-constrained call per interaction, side by side; what fails is left to the fallback."""

    def __init__(
        self, chat: ChatModel, prompt: Prompt, fallback: Classifier, counter: TokenCounter, settings: ModelSettings
    ) -> None:
        self._chat = chat
        self._prompt = prompt
        self._fallback = fallback
        self._counter = counter
        self._settings = settings
        self._schema = extraction.schema()
        self._origin = f"{chat.model} {prompt.label}"

    async def ready(self) -> None:
        """Raises ``Unavailable`` or ``Misconfigured`` when the model cannot be asked now."""
        await self._chat.ready()

    async def classify(self, interactions: Sequence[Interaction]) -> list[Classification]:
        """One per interaction, in order; what the model failed at has the fallback's answer, marked incomplete."""
        return list(await asyncio.gather(*(self._classify(each) for each in interactions)))

    async def _classify(self, interaction: Interaction) -> Classification:
        said = replace(interaction, content=without_recalled(interaction.content))
        if not said.infer or not said.content:
            return (await self._fallback.classify([said]))[0]
        try:
            reply = await self._chat.ask(
                self._prompt.text,
                self._data(said),
                parse=extraction.parse,
                max_tokens=self._settings.max_output_tokens,
                schema=self._schema,
            )
        except MnemorayError as exc:
            logger.warning("episode %s is left to the built-in rules for now: %s", interaction.id, exc)
            return replace((await self._fallback.classify([said]))[0], complete=False)
        return replace(extraction.classification(reply, said), origin=self._origin)

    def _data(self, interaction: Interaction) -> Mapping[str, Any]:
        taken = self._counter.count(self._prompt.text) + self._settings.max_output_tokens + FRAME_TOKENS
        room = max(1, self._settings.context_window - taken)
        return {
            "speaker": interaction.speaker or interaction.user_id,
            "role": interaction.role,
            "date": f"{interaction.occurred_at:%A, %Y-%m-%d %H:%M}",
            "text": self._counter.truncate(interaction.content, room),
        }
