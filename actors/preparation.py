"""What models add to interactions before they are stored: importance, facts, skills and vectors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

import numpy as np

from memory.phrasing import embedded_text, skill_text
from memory.ports import Classifier, Embedder, Vectors
from memory.records import Classification, Interaction
from memory.trust import bounded
from stores.postgres.writes import Prepared


class Preparation:
    """Classifies and embeds a micro-batch: one classifier call, one embedder call."""

    def __init__(self, classifier: Classifier, embedder: Embedder, *, promotion_floor: float) -> None:
        self.classifier = classifier
        self._embedder = embedder
        self._promotion_floor = promotion_floor

    async def ready(self) -> None:
        """Raises ``Unavailable`` or ``Misconfigured`` when nothing can be embedded now."""
        await self._embedder.ready()

    async def prepare(self, interactions: Sequence[Interaction], attempts: Sequence[int]) -> list[Prepared]:
        """Everything the store needs, in order. Raises ``Unavailable`` when the embedder does not answer."""
        if not interactions:
            return []
        classifications = await self.classifier.classify(interactions)
        pairs = [
            (interaction, bounded(found, interaction, promotion_floor=self._promotion_floor))
            for interaction, found in zip(interactions, classifications, strict=True)
        ]
        texts = [text for interaction, classification in pairs for text in _texts(interaction, classification)]
        rows = iter(await self._embedder.embed_documents(texts))
        vectors = [_take(rows, classification) for _, classification in pairs]
        return [
            Prepared(
                interaction=interaction,
                classification=classification,
                vector=vector[0],
                fact_vectors=vector[1 : 1 + len(classification.facts)],
                skill_vectors=vector[1 + len(classification.facts) :],
                attempts=tried,
            )
            for (interaction, classification), vector, tried in zip(pairs, vectors, attempts, strict=True)
        ]


def _texts(interaction: Interaction, classification: Classification) -> Iterator[str]:
    yield embedded_text(interaction.content, speaker=interaction.speaker)
    yield from (fact.fact for fact in classification.facts)
    yield from (skill_text(skill.skill_name, skill.trigger_pattern) for skill in classification.skills)


def _take(rows: Iterator[Vectors], classification: Classification) -> Vectors:
    """The next rows: one for the episode, one per fact, one per skill."""
    count = 1 + len(classification.facts) + len(classification.skills)
    return np.stack(list(islice(rows, count)))
