"""The client library against a running system."""

from __future__ import annotations

import pytest
from mnemoray import AsyncMnemoray, Mnemoray

from tests.acceptance.conftest import Running

pytestmark = pytest.mark.timeout(300)


def test_every_verb_of_the_client_works(instance: Running) -> None:
    owner = {"agent_id": "client", "user_id": "ann"}
    with Mnemoray(base_url=instance.url, api_key=instance.key) as memory:
        first = memory.add("I prefer green tea.", **owner, wait="persistent")
        assert first.state == "stored"
        later = memory.add("The ferry leaves at nine.", **owner)
        assert memory.wait_until_settled(later).state == "stored"
        hits = memory.search("What does the user drink?", **owner).hits
        assert "green tea" in hits[0].memory.content
        assert len(list(memory.get_all(agent_id="client"))) == 3
        changed = memory.update(later.id, agent_id="client", content="The ferry leaves at ten.")
        assert changed.content == "The ferry leaves at ten."
        assert memory.get(later.id, agent_id="client").content == changed.content
        events = memory.history(later.id, agent_id="client")
        assert [event.event for event in events] == ["created", "updated"]
        context = memory.context("When does the ferry leave?", **owner)
        assert "The ferry leaves at ten." in context.messages[0].content
        memory.delete(later.id, agent_id="client")
        memory.delete_all(**owner)
        assert list(memory.get_all(agent_id="client")) == []
        assert memory.ledger().reconciled


async def test_the_asynchronous_client_does_the_same(instance: Running) -> None:
    async with AsyncMnemoray(base_url=instance.url, api_key=instance.key) as memory:
        stored = await memory.add("I prefer black coffee.", agent_id="client-a", user_id="ann", wait="persistent")
        found = [each.id async for each in memory.get_all(agent_id="client-a")]
        assert stored.id in found
