"""The models as a server that the supervisor starts, watches and stops."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

from cluster.paths import DataDir
from cluster.processes import end_session, holder_of, spawn
from configs.model_profile import ModelProfile, Role
from memory.errors import Conflict, Misconfigured

PROJECT = Path(__file__).parents[2]
PYTHON = PROJECT / ".venv-llm" / "bin" / "python"
STOP_TIMEOUT_S = 10.0
FIRST_PAUSE_S = 1.0
MAX_PAUSE_S = 60.0
STEADY_S = 600.0  # a run this long was a success: the next pause is a short one again

MAX_OUTPUT_TOKENS = 1_024  # of one classification; what it says is short


class ModelServer:
    """One process in ``.venv-llm``; its session holds a Ray and the engines.

    It is not waited for: the API answers without models, and a large one takes minutes to load.
    """

    name = "models"

    def __init__(self, profile: ModelProfile, data: DataDir, *, python: Path = PYTHON) -> None:
        if not python.is_file():
            raise Misconfigured(
                f"served models need an environment of their own, {python.parents[1]}: run 'make venv-llm'"
            )
        self.profile = profile
        self._data = data
        self._python = python
        self._process: subprocess.Popen[bytes] | None = None
        self._started = 0.0
        self._ended: float | None = None
        self._pause_s = FIRST_PAUSE_S

    @property
    def log(self) -> Path:
        return self._data.log / "models.log"

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    def alive(self) -> bool:
        """Also while it pauses between two attempts: the supervisor has nothing to do then."""
        if self._process is None or self._process.poll() is None:
            return self._process is not None
        self._ended = self._ended or time.monotonic()
        return time.monotonic() < self._ended + self._pause_s

    def check_port(self) -> None:
        """Raises ``Conflict`` when somebody has the port."""
        if holder := holder_of(self.profile.port):
            raise Conflict(f"port {self.profile.port} of the models is held by {holder}; choose another in the profile")

    def start(self) -> None:
        """Start the process and return; the pause before the next attempt doubles while attempts fail."""
        steady = (self._ended or 0.0) - self._started > STEADY_S
        self._pause_s = FIRST_PAUSE_S if steady else min(MAX_PAUSE_S, 2 * self._pause_s)
        file = self._data.run / "models.json"
        file.write_text(self.profile.model_dump_json())
        command = [str(self._python), "-P", "-m", "cluster.models.host", str(file)]
        command += [str(self._data.root / "models"), str(self._data.sockets("ray-models"))]
        self._process = spawn(command, log=self.log, env=self._environment())
        self._started, self._ended = time.monotonic(), None

    def stop(self) -> None:
        """End every process of the session, also what a killed one left behind."""
        if self._process is not None:
            end_session(self._process.pid, grace_s=STOP_TIMEOUT_S)
            self._process.wait()

    def settings(self) -> Mapping[str, str]:
        """What the API and the shards must see to use these models."""
        return settings_of(self.profile)

    def _environment(self) -> dict[str, str]:
        # Another Ray's address and Serve settings must not reach this one.
        kept = {key: value for key, value in os.environ.items() if not key.startswith("RAY_")}
        return kept | {
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": self._data.secret("ray_models_token"),
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
            "RAYLLM_ENABLE_REQUEST_PROMPT_LOGS": "0",  # prompts hold memories
            "VLLM_NO_USAGE_STATS": "1",
            "PYTHONUNBUFFERED": "1",
        }


def settings_of(profile: ModelProfile) -> dict[str, str]:
    """The environment in which the API and the shards use these models."""
    writing = {
        role: model for role in (Role.CLASSIFIER, Role.SUMMARIZER) if (model := profile.model_for(role)) is not None
    }
    found = {f"MNEMORAY_MODELS__{role.name}": model.name for role, model in writing.items()}
    if writing:
        window = min(model.max_model_len for model in writing.values())
        found |= {
            "MNEMORAY_MODELS__URL": profile.url,
            "MNEMORAY_MODELS__CONTEXT_WINDOW": str(window),
            "MNEMORAY_MODELS__MAX_OUTPUT_TOKENS": str(min(MAX_OUTPUT_TOKENS, window // 4)),
        }
    model = profile.model_for(Role.EMBEDDING)
    if model is not None and model.embedding is not None:
        found |= {
            "MNEMORAY_EMBEDDING__URL": profile.url,
            "MNEMORAY_EMBEDDING__MODEL": model.name,
            "MNEMORAY_EMBEDDING__DIMENSION": str(model.embedding.dimension),
            "MNEMORAY_EMBEDDING__QUERY_PREFIX": model.embedding.query_prefix,
            "MNEMORAY_EMBEDDING__DOCUMENT_PREFIX": model.embedding.document_prefix,
        }
    return found
