"""Ending background tasks."""

from __future__ import annotations

import asyncio
from typing import Any

AGAIN_S = 0.5


async def end(*tasks: asyncio.Task[Any]) -> None:
    """Cancel tasks that have nothing to clean up, and wait until they are done.

    Again and again, because ``asyncio.wait_for`` of Python 3.11, which the drivers use, loses a cancellation that
    comes in the instant when what it waits for is ready.
    """
    pending = {task for task in tasks if not task.done()}
    while pending:
        for task in pending:
            task.cancel()
        _, pending = await asyncio.wait(pending, timeout=AGAIN_S)
