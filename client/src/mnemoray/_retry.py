"""Whether to repeat a failed request, and when: a decision, carried out by the transport."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from mnemoray.errors import ApiError, Backpressure, ConnectionFailed, MnemorayError, Unavailable


@dataclass(frozen=True, kw_only=True, slots=True)
class RetryPolicy:
    """Full jitter: the n-th wait is random between zero and a bound that doubles."""

    max_attempts: int = 5  # requests sent at most, the first included
    base_delay_s: float = 0.2  # bound of the first wait
    max_delay_s: float = 10.0  # bound of every wait that the server did not ask for
    max_retry_after_s: float = 60.0  # a server that asks for more gets no repetition; the error says how long
    jitter: Callable[[], float] = random.random  # a number in [0, 1)

    def __post_init__(self) -> None:
        if self.max_attempts < 1:
            raise ValueError("max_attempts must be at least 1; 1 sends every request once")

    def delay_s(self, error: MnemorayError, attempt: int, *, repeatable: bool) -> float | None:
        """Seconds to wait after the ``attempt``-th failure (from 1); ``None`` raises the error.

        A request that is not repeatable is sent again only when the server certainly did not act.
        """
        if attempt >= self.max_attempts or not (_untouched(error) or (repeatable and _passing(error))):
            return None
        backoff = self.jitter() * min(self.max_delay_s, self.base_delay_s * 2.0 ** (attempt - 1))
        asked = error.retry_after_s if isinstance(error, ApiError) else None
        if asked is None:
            return backoff
        return asked + backoff if asked <= self.max_retry_after_s else None


def _untouched(error: MnemorayError) -> bool:
    if isinstance(error, ConnectionFailed):
        return not error.sent
    return isinstance(error, Backpressure | Unavailable)


def _passing(error: MnemorayError) -> bool:
    return isinstance(error, ConnectionFailed) or (isinstance(error, ApiError) and error.status in (502, 504))


def retry_after_s(header: str | None) -> float | None:
    """Seconds of a Retry-After header, which holds a number or a date."""
    if header is None:
        return None
    if header.strip().isdecimal():
        return float(header)
    try:
        moment = parsedate_to_datetime(header)
    except ValueError:
        return None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return max(0.0, (moment - datetime.now(UTC)).total_seconds())
