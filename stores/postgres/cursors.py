"""Opaque cursors of pages: the place after the last row, as a time and an id."""

from __future__ import annotations

import base64
from datetime import datetime
from uuid import UUID

from memory.errors import InvalidInput


def encode(moment: datetime, identity: UUID) -> str:
    return base64.urlsafe_b64encode(f"{moment.isoformat()}|{identity.hex}".encode()).decode()


def decode(cursor: str) -> tuple[datetime, UUID]:
    """Raises ``InvalidInput`` when ``cursor`` did not come from a page."""
    try:
        moment, _, identity = base64.urlsafe_b64decode(cursor.encode()).decode().partition("|")
        parsed = datetime.fromisoformat(moment)
        if parsed.tzinfo is None:
            raise ValueError("naive")
        return parsed, UUID(hex=identity)
    except ValueError:
        raise InvalidInput("this cursor did not come from a page; start without one") from None
