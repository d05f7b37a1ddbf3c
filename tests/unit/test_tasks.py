from __future__ import annotations

import asyncio
import logging

import pytest

from stores import tasks


async def forever() -> None:
    await asyncio.sleep(3_600)


async def test_a_cancellation_that_was_lost_is_repeated() -> None:
    async def deaf_once() -> None:
        try:
            await forever()
        except asyncio.CancelledError:
            await forever()

    task = asyncio.create_task(deaf_once())
    await asyncio.sleep(0)
    await tasks.end(task)
    assert task.cancelled()


async def test_a_task_that_never_ends_is_left_and_named(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(tasks, "GIVE_UP_S", 0.2)
    monkeypatch.setattr(tasks, "AGAIN_S", 0.05)
    deaf = True

    async def stubborn() -> None:
        while deaf:
            try:
                await forever()
            except asyncio.CancelledError:
                continue

    task = asyncio.create_task(stubborn(), name="mule")
    await asyncio.sleep(0)
    with caplog.at_level(logging.ERROR):
        await tasks.end(task)
    assert not task.done()
    assert "mule" in caplog.text
    assert "forever" in caplog.text
    deaf = False
    await tasks.end(task)
    assert task.done()
