"""Parts of the engine are killed while a request runs."""

from __future__ import annotations

import signal
import threading
import time

import httpx
import pytest

from tests.llm.conftest import Engine

FAILURE_TIMEOUT_S = 120.0
BACK_TIMEOUT_S = 240.0


def _ask_in_background(llm: Engine) -> tuple[threading.Thread, list[httpx.Response | httpx.HTTPError]]:
    found: list[httpx.Response | httpx.HTTPError] = []

    def ask() -> None:
        try:
            found.append(llm.ask("Tell a long story.", max_tokens=600, timeout_s=FAILURE_TIMEOUT_S, ignore_eos=True))
        except httpx.HTTPError as exc:
            found.append(exc)

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    return thread, found


@pytest.mark.timeout(600)
@pytest.mark.parametrize("title", ["ServeReplica:models:LLMServer", "VLLM::EngineCore"])
def test_a_killed_part_fails_its_request_and_comes_back(llm: Engine, title: str) -> None:
    thread, found = _ask_in_background(llm)
    time.sleep(2)
    assert thread.is_alive()
    (victim,) = llm.processes(title)
    victim.send_signal(signal.SIGKILL)
    thread.join(FAILURE_TIMEOUT_S + 10)
    assert not thread.is_alive(), "the request hangs"
    (answer,) = found
    assert isinstance(answer, httpx.Response), f"{answer!r}"
    assert answer.status_code == 200 or answer.status_code >= 500
    took = llm.await_answer(BACK_TIMEOUT_S)
    print(f"{title}: status {answer.status_code}; back after {took:.0f} s")
    assert llm.server.alive()  # Serve mended it, without a new start of everything
