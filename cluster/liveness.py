"""Whether an API answers."""

from __future__ import annotations

import time

import httpx

PROBE_S = 5.0
PROBE_TIMEOUT_S = 3.0


def answers(url: str, path: str) -> bool:
    """A GET of a path that needs no key succeeds."""
    try:
        return httpx.get(f"{url}{path}", timeout=PROBE_TIMEOUT_S).status_code == httpx.codes.OK
    except httpx.TransportError:
        return False


class Liveness:
    """How often in a row the API did not answer. What it depends on may be away meanwhile: this asks for life only."""

    def __init__(self, url: str, path: str = "/health/live") -> None:
        self._url = url
        self._path = path
        self.reset()

    def reset(self) -> None:
        """Count from now."""
        self._missed, self._asked = 0, time.monotonic()

    def missed(self) -> int:
        """Answers that did not come; asks again when the last question is ``PROBE_S`` old."""
        if time.monotonic() - self._asked >= PROBE_S:
            self._missed = 0 if answers(self._url, self._path) else self._missed + 1
            self._asked = time.monotonic()
        return self._missed
