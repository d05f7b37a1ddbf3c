"""The HTTP API as the data commands use it."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

import httpx
import typer

from cluster.console import data_dir, errors_explained
from cluster.paths import DataDir
from memory.errors import Backpressure, Conflict, InvalidInput, Misconfigured, MnemorayError, NotFound, Unavailable

TIMEOUT_S = 60.0
ATTEMPTS = 30  # of a request that is answered 429 or 503
RETRY_AFTER_S = 1.0  # when the answer does not say
RETRY_AFTER_MAX_S = 60.0

UrlOption = Annotated[
    str | None, typer.Option("--url", envvar="MNEMORAY_URL", help="The API; left out, the instance of --data-dir.")
]
KeyOption = Annotated[
    str | None, typer.Option("--key", envvar="MNEMORAY_API_KEY", help="The API key; left out, that instance's own.")
]
AgentOption = Annotated[str, typer.Option("--agent", help="The agent whose memory it is.")]
UserOption = Annotated[str, typer.Option("--user", help="The user whom the agent serves.")]


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where the API is."""

    url: str
    key: str = field(repr=False)


def find_endpoint(url: str | None, key: str | None, data: DataDir) -> Endpoint:
    """What was given; what is missing comes from the running instance, whose key goes to no other URL."""
    if url and key:
        return Endpoint(_checked(url), key)
    recorded = _recorded(data)
    if recorded is None:
        found = f"no instance runs in {data.root}"
        raise Misconfigured(f"{found}; start one with 'mnemoray up', or pass --url and --key (or --data-dir)")
    if url and _checked(url) != str(recorded["url"]).rstrip("/"):
        raise Misconfigured(f"no API key for {url}; pass --key, or set MNEMORAY_API_KEY")
    return Endpoint(str(recorded["url"]).rstrip("/"), key or _key(data, str(recorded["key_file"])))


def _checked(url: str) -> str:
    if not url.startswith(("http://", "https://")):
        raise InvalidInput(f"{url!r} is no URL; it must begin with http:// or https://")
    return url.rstrip("/")


def _recorded(data: DataDir) -> dict[str, Any] | None:
    try:
        found = json.loads(data.endpoint.read_text())
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) and {"url", "key_file"} <= found.keys() else None


def _key(data: DataDir, key_file: str) -> str:
    try:
        return (data.endpoint.parent / key_file).read_text().strip()
    except OSError as exc:
        raise Misconfigured(f"cannot read the key in {key_file} ({exc.strerror}); pass --key") from exc


def path(*segments: str) -> str:
    """A path under ``/v1``; ids may hold any character."""
    return "/v1/" + "/".join(_segment(segment) for segment in segments)


def _segment(text: str) -> str:
    quoted = quote(text, safe="")
    return quoted.replace(".", "%2E") if not text.strip(".") else quoted


class Api:
    """Requests that wait when the API asks for it, and raise errors that say what to do."""

    def __init__(self, endpoint: Endpoint, *, transport: httpx.BaseTransport | None = None) -> None:
        self._url = endpoint.url
        headers = {"Authorization": f"Bearer {endpoint.key}"}
        self._http = httpx.Client(headers=headers, timeout=httpx.Timeout(TIMEOUT_S, connect=5.0), transport=transport)

    def close(self) -> None:
        self._http.close()

    def get(self, at: str, params: Mapping[str, Any] | None = None) -> Any:
        return self.send("GET", at, params=params)

    def post(self, at: str, body: Mapping[str, Any] | None = None) -> Any:
        return self.send("POST", at, body=body)

    def delete(self, at: str) -> Any:
        return self.send("DELETE", at)

    def send(
        self, method: str, at: str, *, params: Mapping[str, Any] | None = None, body: Mapping[str, Any] | None = None
    ) -> Any:
        """The JSON of the answer. 429 and 503 changed nothing: they are repeated when Retry-After is over."""
        for attempt in range(1, ATTEMPTS + 1):
            response = self._once(method, at, params, body)
            if response.status_code not in (429, 503) or attempt == ATTEMPTS:
                break
            wait(_retry_after_s(response))
        return self._answer(response)

    def _once(
        self, method: str, at: str, params: Mapping[str, Any] | None, body: Mapping[str, Any] | None
    ) -> httpx.Response:
        try:
            return self._http.request(method, self._url + at, params=params, json=body)
        except (httpx.TransportError, httpx.InvalidURL) as exc:
            reason = str(exc) or type(exc).__name__
            hint = "is it running there? 'mnemoray status' tells, 'mnemoray up' starts it, --url names another"
            raise Unavailable(f"no answer from {self._url} ({reason}); {hint}") from exc

    def _answer(self, response: httpx.Response) -> Any:
        if response.is_success:
            try:
                return response.json()
            except ValueError as exc:
                raise Misconfigured(f"{self._url} does not answer in JSON; is this the API of Mnemoray?") from exc
        raise self._error(response)

    def _error(self, response: httpx.Response) -> MnemorayError:
        status, detail = response.status_code, _detail(response)
        if status in (401, 403):
            return Misconfigured(f"{self._url} refuses the API key ({detail}); pass --key, or set MNEMORAY_API_KEY")
        if status == 429:
            return Backpressure(f"{detail}; try again later", retry_after_s=_retry_after_s(response))
        if status == 503:
            return Unavailable(f"{self._url} is not available: {detail}")
        kind = {404: NotFound, 409: Conflict}.get(status, InvalidInput if status < 500 else MnemorayError)
        return kind(detail)


def wait(seconds: float) -> None:
    time.sleep(seconds)


def _retry_after_s(response: httpx.Response) -> float:
    said = response.headers.get("Retry-After", "")
    return min(RETRY_AFTER_MAX_S, float(said)) if said.isdecimal() else RETRY_AFTER_S


def _detail(response: httpx.Response) -> str:
    try:
        return str(response.json()["detail"])
    except (ValueError, KeyError, TypeError):
        return f"{response.status_code} {response.reason_phrase}"


@contextmanager
def connected(url: str | None, key: str | None, data_dir_: Path | None) -> Iterator[Api]:
    """The API that the options name; errors end the command with one line and an exit code."""
    with errors_explained():
        api = Api(find_endpoint(url, key, data_dir(data_dir_)))
        try:
            yield api
        finally:
            api.close()
