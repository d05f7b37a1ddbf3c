"""A language model behind an OpenAI-compatible URL, asked within a budget and never trusted."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from configs.settings import ModelSettings
from memory.errors import InvalidOutput, Misconfigured, MnemorayError, Unavailable
from stores.models.endpoint import Busy, Endpoint

logger = logging.getLogger(__name__)
T = TypeVar("T")
Count = Callable[[str, str], None]  # model, outcome of one attempt

FIRST_WAIT_S = 0.5  # before the second attempt; doubled for each further one
LONGEST_WAIT_S = 30.0
PAUSE_S = 10.0  # how long a model that does not answer is left alone


class ChatModel:
    """One model of one server. Close it with ``aclose()``.

    A server that does not answer is left alone for a while: meanwhile every question fails at once, so that a queue of
    them does not wait for one time-out each.
    """

    def __init__(self, settings: ModelSettings, model: str, *, count: Count) -> None:
        self.model = model
        self._settings = settings
        self._count = count
        self._endpoint = Endpoint(
            settings.url or "",
            api_key=settings.api_key,
            timeout_s=settings.timeout_s,
            concurrency=settings.concurrency,
        )
        self._slots = asyncio.Semaphore(settings.concurrency)
        self._paused_until = 0.0

    async def aclose(self) -> None:
        await self._endpoint.aclose()

    async def ready(self) -> None:
        """Raises ``Unavailable`` when the server does not answer, ``Misconfigured`` when it has no such model."""
        self._refuse_while_paused()
        found = await self._endpoint.call("GET", "models")
        names = [str(each.get("id")) for each in found.get("data", []) if isinstance(each, dict)]
        if self.model not in names:
            raise Misconfigured(f"{self._settings.url} serves {', '.join(names) or 'nothing'}, not {self.model}")
        # A server lists a model that it is still loading; only a model that answers is ready.
        await self._endpoint.call("POST", "chat/completions", self._body("", {}, 1, None))

    async def ask(
        self,
        system: str,
        data: Mapping[str, Any],
        *,
        parse: Callable[[str], T],
        max_tokens: int,
        schema: Mapping[str, Any] | None = None,
        attempts: int | None = None,
    ) -> T:
        """What ``parse`` makes of the answer to ``system`` about ``data``, which is sent as JSON.

        ``parse`` raises ``InvalidOutput`` for what it cannot use. Raises the last ``InvalidOutput`` or ``Unavailable``
        when all attempts failed, ``Misconfigured`` when the server refuses the request for good.
        """
        body = self._body(system, data, max_tokens, schema)
        allowed = attempts or self._settings.attempts
        async with self._slots:
            for attempt in range(1, allowed + 1):
                self._refuse_while_paused()
                try:
                    found = parse(_text(await self._endpoint.call("POST", "chat/completions", body)))
                except MnemorayError as exc:
                    self._count(self.model, exc.code)
                    await self._wait_or_give_up(exc, attempt, allowed)
                else:
                    self._count(self.model, "ok")
                    return found
        raise AssertionError("the last attempt returns or raises")

    async def _wait_or_give_up(self, failure: MnemorayError, attempt: int, allowed: int) -> None:
        if attempt == allowed or not isinstance(failure, InvalidOutput | Unavailable):
            if isinstance(failure, Unavailable):
                self._paused_until = time.monotonic() + PAUSE_S
            raise failure
        wait_s = FIRST_WAIT_S * 2 ** (attempt - 1) if isinstance(failure, Unavailable) else 0.0
        asked_s = failure.retry_after_s if isinstance(failure, Busy) else 0.0
        await asyncio.sleep(min(LONGEST_WAIT_S, max(wait_s, asked_s)))

    def _refuse_while_paused(self) -> None:
        if time.monotonic() < self._paused_until:
            raise Unavailable(f"{self.model} at {self._settings.url} did not answer and is left alone for a while")

    def _body(
        self, system: str, data: Mapping[str, Any], max_tokens: int, schema: Mapping[str, Any] | None
    ) -> dict[str, Any]:
        content = json.dumps(data, ensure_ascii=False)  # a string cannot close the object that it stands in
        body: dict[str, Any] = {
            "model": self.model,
            "messages": [{"role": "system", "content": system}, {"role": "user", "content": content}],
            "max_tokens": max_tokens,
            "temperature": 0.0,
        }
        if schema is not None:
            named = {"name": "reply", "schema": schema, "strict": True}
            body["response_format"] = {"type": "json_schema", "json_schema": named}
        return body


def _text(answer: Mapping[str, Any]) -> str:
    """The words of the first choice. Raises ``InvalidOutput`` for none, and for an answer that its limit cut off."""
    try:
        choice = answer["choices"][0]
        content = choice["message"]["content"]
    except (KeyError, IndexError, TypeError) as exc:
        raise InvalidOutput(f"the answer has no message: {exc!r}") from None
    if not isinstance(content, str) or not content.strip():
        raise InvalidOutput("the answer is empty")
    if choice.get("finish_reason") == "length":
        raise InvalidOutput("the answer was cut off at its limit of tokens")
    return content
