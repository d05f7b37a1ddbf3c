"""Where the API is, and with which key."""

from __future__ import annotations

import os
from dataclasses import dataclass, field

from mnemoray.errors import NotConfigured

URL_VARIABLE = "MNEMORAY_URL"
KEY_VARIABLE = "MNEMORAY_API_KEY"


@dataclass(frozen=True, slots=True)
class Endpoint:
    base_url: str
    api_key: str = field(repr=False)


def endpoint(base_url: str | None, api_key: str | None) -> Endpoint:
    """What was given, else what the environment says."""
    url = base_url or os.environ.get(URL_VARIABLE)
    if not url:
        raise NotConfigured(f"no URL: pass base_url, or set {URL_VARIABLE} (for example http://127.0.0.1:8787)")
    if not url.startswith(("http://", "https://")):
        raise NotConfigured(f"{url!r} is no URL; it must begin with http:// or https://")
    key = api_key or os.environ.get(KEY_VARIABLE)
    if not key:
        raise NotConfigured(f"no API key: pass api_key, or set {KEY_VARIABLE}; `mnemoray up` prints it")
    return Endpoint(url.rstrip("/"), key)
