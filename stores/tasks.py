"""Cancelling tasks whose drivers swallow cancellations, and ending them."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any

logger = logging.getLogger(__name__)
AGAIN_S = 0.5
GIVE_UP_S = 15.0


def heed_cancellation() -> None:
    """Raise ``CancelledError`` when the current task was cancelled and what it awaited swallowed that.

    ``asyncio.wait_for`` of Python 3.11, which the drivers use, loses a cancellation that comes in the instant when what
    it waits for is ready.
    """
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


async def end(*tasks: asyncio.Task[Any]) -> None:
    """Cancel tasks that have nothing to clean up, and wait until they are done.

    Again and again, because a driver may swallow a cancellation (see ``heed_cancellation``). One that does not end at
    all is left, with a line in the log that says where it stands: whoever stops must not hang on it.
    """
    pending = {task for task in tasks if not task.done()}
    deadline = time.monotonic() + GIVE_UP_S
    while pending and time.monotonic() < deadline:
        for task in pending:
            task.cancel()
        _, pending = await asyncio.wait(pending, timeout=AGAIN_S)
    for task in pending:
        logger.error("task %s does not end; it stands at %s", task.get_name(), _position(task))


def _position(task: asyncio.Task[Any]) -> str:
    """The chain of coroutines that the task waits in, outermost first."""
    found: list[str] = []
    awaited: Any = task.get_coro()
    while (frame := getattr(awaited, "cr_frame", None)) is not None:
        found.append(f"{frame.f_code.co_qualname}:{frame.f_lineno}")
        awaited = getattr(awaited, "cr_await", None)
    return " > ".join([*found, repr(awaited)])
