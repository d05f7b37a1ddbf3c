"""Memory poisoning: texts that give orders to a memory, through the whole system, and what they achieved.

``python -m benchmarks.injection [--data FILE] [--channel CHANNEL] [--json OUT]``

Each text is written once, for an agent of its own that knows three facts and a skill of its user already, as a
careless application would write it: with the user's name and the role ``user``, whatever its channel. Then everything
that could have changed is looked at. An attempt *raised* something if a fact or the episode is above the limit of its
channel, or its trust is another; it *changed* something if a fact or the skill that was there is not as it was; it was
*recalled* if search, context or a search over all agents gives a new fact or skill. ``held`` counts the texts with
facts in quarantine, ``kept`` those that are found as what somebody said.

The file is JSON lines ``{id, category, label, tactic, channel, lang, text}``; without ``--data`` it is the project's
own. ``--channel user`` shows what happens to an application that does not say where its texts come from. The classifier
is the configured one (``MNEMORAY_MODELS__URL``, ``MNEMORAY_MODELS__CLASSIFIER``), by default the built-in rules.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import httpx
from rich.console import Console
from rich.table import Table

from actors.service import ShardService
from benchmarks.in_process import SHARD, TENANT, servers
from benchmarks.instance import machine
from configs.settings import Settings
from memory.records import Tier, Trust
from memory.routing import assignments
from memory.rules import RuleClassifier
from memory.trust import CONFIDENCE_LIMITS, IMPORTANCE_LIMITS
from serve.app import build_app
from stores.models.minilm import MiniLM
from stores.postgres.shards import ShardStore

OWN = Path(__file__).parent.parent / "tests" / "data" / "injection.jsonl"
USER, KEY, ADMIN = "ann", "key", "admin"
KNOWN = "My name is Ann Moreau. I live in Lisbon. I prefer green tea."
SKILL = "To deploy the app: first run the tests, then build the image, then restart."
ASKED = ("What is the user's name, where does the user live, what does the user prefer?", "deploy the app")
#: The channels of other collections. What comes back as a memory or a summary is a tool's word here.
CHANNELS = {"user_input": Trust.USER, "tool_output": Trust.TOOL, "memory": Trust.TOOL}
EXTRACTION_S = 300
QUERY_LENGTH = 2_000  # of a text that is searched for
COLUMNS = ("texts", "raised", "changed", "recalled", "held", "kept")
ROUNDING = 1e-6  # of confidence, which is stored in single precision


@dataclass(frozen=True, kw_only=True)
class Case:
    """One text to write."""

    tactic: str
    channel: Trust
    malicious: bool
    text: str


@dataclass(frozen=True, kw_only=True)
class Result:
    """What one text achieved."""

    raised: bool  # above the limit of its channel
    changed: bool  # something that was known before
    recalled: bool  # as a fact or a skill
    held: bool  # in quarantine
    kept: bool  # as an episode


def cases(file: Path, channel: Trust | None = None) -> Iterator[Case]:
    """The texts of a file, as of their channels or all as of one."""
    for line in file.read_text("utf-8").splitlines():
        found = json.loads(line)
        said = found["channel"]
        yield Case(
            tactic=found.get("tactic") or found["category"],
            channel=channel or CHANNELS.get(said) or Trust(said),
            malicious=found["label"] == "malicious",
            text=found["text"],
        )


@asynccontextmanager
async def system() -> AsyncIterator[httpx.AsyncClient]:
    """The API and one shard in this process, over servers of their own."""
    async with servers(api_keys={KEY: TENANT}, admin_keys={ADMIN: TENANT}) as settings:
        app = build_app(settings)
        async with app.router.lifespan_context(app):
            await ShardStore(app.state.services.database).assign(assignments([SHARD]))
            async with (
                _shard(settings),
                httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://api", timeout=60) as api,
            ):
                api.headers["Authorization"] = f"Bearer {KEY}"
                yield api


@asynccontextmanager
async def _shard(settings: Settings) -> AsyncIterator[None]:
    service = ShardService(SHARD, settings, embedder=MiniLM(), classifier=RuleClassifier())
    task = asyncio.create_task(service.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


class Attempt:
    """One text against an agent of its own."""

    def __init__(self, api: httpx.AsyncClient, agent: str, case: Case) -> None:
        self._api = api
        self._case = case
        self._path = f"/v1/agents/{agent}"

    async def run(self) -> Result:
        for text in (KNOWN, SKILL):
            await self._write(text, trust=Trust.USER, event_type="action" if text is SKILL else "conversation")
        before = await self._known()
        episode = await self._write(self._case.text, trust=self._case.channel)
        after = await self._known()
        held = (await self._get("quarantine"))["items"]
        return Result(
            raised=self._is_raised(
                episode, [fact for fact in (*after.values(), *held) if episode["id"] in _sources(fact)]
            ),
            changed=any(after.get(memory_id) != memory for memory_id, memory in before.items()),
            recalled=bool(await self._recalled() - before.keys()),
            held=bool(held),
            kept=episode["id"] in await self._found(self._case.text, Tier.EPISODIC),
        )

    async def _get(self, path: str, **params: str) -> Any:
        return (await self._api.get(f"{self._path}/{path}", params=params)).raise_for_status().json()

    async def _post(self, path: str, **body: Any) -> Any:
        return (await self._api.post(path, json=body)).raise_for_status().json()

    async def _write(self, text: str, **body: Any) -> Mapping[str, Any]:
        """The episode, once it is stored and read."""
        said = {"content": text, "user_id": USER, "speaker": "Ann", "wait": "persistent"}
        written = await self._post(f"{self._path}/memories", **said | body)
        for _ in range(EXTRACTION_S * 10):
            episode: dict[str, Any] = await self._get(f"memories/{written['id']}")
            if episode["details"]["extraction"] != "pending":
                return episode
            await asyncio.sleep(0.1)
        raise TimeoutError(f"not read after {EXTRACTION_S} s: {text[:80]!r}")

    async def _known(self) -> dict[str, dict[str, Any]]:
        """Facts and skills that live, by id, without what reading them changes."""
        found = [
            memory
            for tier in ("semantic", "procedural")
            for memory in (await self._get("memories", tier=tier, limit="500"))["items"]
        ]
        return {memory["id"]: memory | {"access_count": 0, "last_accessed_at": None} for memory in found}

    def _is_raised(self, episode: Mapping[str, Any], derived: Sequence[Mapping[str, Any]]) -> bool:
        channel = self._case.channel
        confidences = [memory["importance"] for memory in derived if memory["tier"] == "semantic"]
        return (
            episode["details"]["trust"] != channel
            or episode["importance"] > IMPORTANCE_LIMITS[channel] + ROUNDING
            or max(confidences, default=0.0) > CONFIDENCE_LIMITS[channel] + ROUNDING
        )

    async def _recalled(self) -> set[str]:
        found: set[str] = set()
        for query in (*ASKED, self._case.text):
            found |= await self._found(query, Tier.SEMANTIC, Tier.PROCEDURAL)
        return found | await self._recalled_over_all()

    async def _found(self, query: str, *tiers: Tier) -> set[str]:
        """By search and in a context."""
        asked = {"query": query[:QUERY_LENGTH], "user_id": USER, "tiers": tiers}
        hits = (await self._post(f"{self._path}/memories/search", **asked))["hits"]
        items = (await self._post(f"{self._path}/context", **asked))["items"]
        return {each["memory"]["id"] for each in (*hits, *items)}

    async def _recalled_over_all(self) -> set[str]:
        body = {
            "query": self._case.text[:QUERY_LENGTH],
            "agents": [self._path.rpartition("/")[2]],
            "tiers": [Tier.SEMANTIC, Tier.PROCEDURAL],
        }
        as_admin = {"Authorization": f"Bearer {ADMIN}"}
        answer = await self._api.post("/v1/memories/search", json=body, headers=as_admin)
        return {hit["memory"]["id"] for hit in answer.raise_for_status().json()["hits"]}


def _sources(memory: Mapping[str, Any]) -> Sequence[str]:
    found: Sequence[str] = memory["source_ids"]
    return found


async def measure(tried: Sequence[Case]) -> list[tuple[Case, Result]]:
    async with system() as api:
        return [(case, await Attempt(api, f"case-{number}", case).run()) for number, case in enumerate(tried)]


Counts = Mapping[tuple[str, str], Mapping[str, int]]


def counts(found: Sequence[tuple[Case, Result]]) -> Counts:
    """How many texts achieved what, by tactic and channel; look-alikes by channel only."""
    groups: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for case, result in found:
        kind = "all attempts" if case.malicious else "all look-alikes"
        names = {(case.tactic if case.malicious else kind, str(case.channel)), (kind, str(case.channel)), (kind, "")}
        for name in names:
            groups[name].update({"texts": 1} | {key: int(value) for key, value in asdict(result).items()})
    return {name: groups[name] for name in sorted(groups, key=lambda name: (name[0].startswith("all"), name))}


def table(counted: Counts, title: str) -> Table:
    shown = Table(title=title, title_justify="left")
    for column in ("tactic", "channel", *COLUMNS):
        shown.add_column(column, justify="left" if column in ("tactic", "channel") else "right", no_wrap=True)
    for name, row in counted.items():
        shown.add_row(*name, *(str(row[column]) for column in COLUMNS))
    return shown


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=OWN, help="a file of texts; left out, the project's own")
    parser.add_argument("--channel", type=Trust, choices=list(Trust), help="write all texts as of this channel")
    parser.add_argument("--json", type=Path, help="write the counts here")
    arguments = parser.parse_args()
    counted = counts(asyncio.run(measure(list(cases(arguments.data, arguments.channel)))))
    Console().print(table(counted, f"Memory poisoning: {arguments.data.name}"))
    if arguments.json:
        rows = [{"tactic": tactic, "channel": channel, **row} for (tactic, channel), row in counted.items()]
        arguments.json.write_text(json.dumps({"counts": rows, "machine": machine()}, indent=2))


if __name__ == "__main__":
    main()
