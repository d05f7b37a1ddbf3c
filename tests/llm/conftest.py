"""A real vLLM behind Ray Serve, started once for all tests here, the way ``mnemoray up --models`` starts it."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import httpx
import psutil
import pytest

from cluster.models.server import ModelServer
from cluster.paths import DataDir
from cluster.processes import free_port, session_of
from configs.model_profile import load_profile

START_TIMEOUT_S = 400.0  # the first start makes the model's files too

collect_ignore_glob = [] if find_spec("vllm") else ["test_*.py"]  # in the other environment


def wait_until(condition: Callable[[], bool], timeout_s: float, otherwise: str) -> float:
    """How long it took, in seconds."""
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < timeout_s, otherwise
        time.sleep(0.5)
    return time.monotonic() - began


@dataclass(frozen=True)
class Engine:
    """Served models."""

    server: ModelServer
    url: str  # of the OpenAI-compatible API, with /v1
    model: str

    def ask(self, text: str, *, max_tokens: int = 8, timeout_s: float = 60, **more: Any) -> httpx.Response:
        return httpx.post(f"{self.url}/chat/completions", json=self.body(text, max_tokens, **more), timeout=timeout_s)

    def body(self, text: str, max_tokens: int, **more: Any) -> dict[str, Any]:
        message = {"role": "user", "content": text}
        return {"model": self.model, "messages": [message], "max_tokens": max_tokens, "temperature": 0, **more}

    def answers(self) -> bool:
        try:
            return self.ask("Hello", max_tokens=1).status_code == httpx.codes.OK
        except httpx.TransportError:
            return False

    def processes(self, title: str) -> list[psutil.Process]:
        """Those of its session that show ``title``; Ray and vLLM tell in it what a process does."""
        assert self.server.pid is not None
        return [process for process in session_of(self.server.pid) if title in _title(process)]

    def await_answer(self, timeout_s: float) -> float:
        return wait_until(self.answers, timeout_s, f"no answer; see {self.server.log}:\n{self.tail()}")

    def tail(self) -> str:
        return self.server.log.read_text(errors="replace")[-3000:] if self.server.log.exists() else ""


def _title(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


@pytest.fixture(scope="session")
def engine(data: DataDir) -> Iterator[Engine]:
    """The profile ``cpu-smollm2``, on a free port, ready to answer."""
    profile = load_profile("cpu-smollm2").model_copy(update={"port": free_port()})
    server = ModelServer(profile, data)
    server.start()
    try:
        found = Engine(server, profile.url, profile.models[0].name)
        found.await_answer(START_TIMEOUT_S)
        yield found
    finally:
        server.stop()


@pytest.fixture
def llm(engine: Engine) -> Engine:
    """The engine, answering: a test before this one may have killed a part of it."""
    engine.await_answer(180)
    return engine


@pytest.fixture
def llm_url(llm: Engine) -> str:
    return llm.url


@pytest.fixture
def llm_model(llm: Engine) -> str:
    return llm.model


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(timeout=120) as opened:
        yield opened
