"""Which models are served beside the API, and on what: read from a YAML file in ``configs/models`` or elsewhere."""

from __future__ import annotations

from collections import Counter
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from memory.errors import Misconfigured

PROFILES = Path(__file__).parent / "models"
PACKAGE = "package:"


class Role(StrEnum):
    CLASSIFIER = "classifier"
    SUMMARIZER = "summarizer"
    EMBEDDING = "embedding"


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Autoscaling(_Section):
    """How many replicas of a model run."""

    min_replicas: int = Field(1, ge=0, description="0 lets an unused model go; its next request waits for a start")
    max_replicas: int = Field(1, ge=1)
    target_ongoing_requests: float = Field(8, gt=0, description="per replica; above it another replica starts")

    @model_validator(mode="after")
    def _ordered(self) -> Autoscaling:
        if self.min_replicas > self.max_replicas:
            raise ValueError(f"min_replicas ({self.min_replicas}) is above max_replicas ({self.max_replicas})")
        return self


class Embedding(_Section):
    """What an embedding model's vectors are, and what it wants put before a text."""

    dimension: int = Field(gt=0, le=2000, description="fixed when the database is created")
    query_prefix: str = ""
    document_prefix: str = ""


class Model(_Section):
    """One model and the hardware of one replica."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._/-]*$", description="what requests call it")
    source: str = Field(min_length=1, description="a folder, a hub id, or package:NAME of an installed package")
    roles: tuple[Role, ...] = Field(min_length=1)
    accelerator: str | None = Field(None, description="Ray's name of it, such as L4 or H100; unset takes any")
    cpus: float = Field(1, gt=0, description="logical CPUs of each worker, for Ray's placement")
    gpus: float = Field(0, ge=0, le=1, description="GPUs of each worker; a part of one shares it; 0 runs on the CPU")
    tensor_parallel: int = Field(1, ge=1, description="workers, each with these CPUs and GPUs, that share one replica")
    autoscaling: Autoscaling = Autoscaling()
    max_model_len: int = Field(8192, ge=256, description="tokens of a prompt and its answer")
    max_num_seqs: int = Field(64, ge=1, description="requests in one batch")
    dtype: Literal["auto", "bfloat16", "float16", "float32"] = "auto"
    kv_cache_gib: float | None = Field(None, gt=0, description="memory of the KV cache; needed on a CPU")
    embedding: Embedding | None = Field(None, description="for the role embedding")
    engine_kwargs: dict[str, Any] = Field(default_factory=dict, description="further arguments of vLLM's engine")

    @model_validator(mode="after")
    def _consistent(self) -> Model:
        if (self.embedding is not None) != (Role.EMBEDDING in self.roles):
            raise ValueError("the role embedding and the section embedding need each other")
        if self.embedding is not None and len(self.roles) > 1:
            raise ValueError("an embedding model writes no text: it can have no other role")
        if not self.gpus and self.accelerator:
            raise ValueError(f"accelerator {self.accelerator} without gpus")
        if not self.gpus and self.kv_cache_gib is None:
            raise ValueError("a model on the CPU needs kv_cache_gib: vLLM would take most of the memory otherwise")
        return self


class ModelProfile(_Section):
    """The models of one installation."""

    port: int = Field(8790, ge=1, le=65_535, description="of the OpenAI-compatible API, on loopback")
    request_timeout_s: float = Field(300, gt=0, description="a request that takes longer ends with status 408")
    ingress_replicas: int = Field(1, ge=1, description="processes that take requests and hand them to the models")
    models: tuple[Model, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _one_each(self) -> ModelProfile:
        for what, found in (
            ("name", Counter(model.name for model in self.models)),
            ("role", Counter(role.value for model in self.models for role in model.roles)),
        ):
            if twice := sorted(key for key, count in found.items() if count > 1):
                raise ValueError(f"more than one model has the {what} {', '.join(twice)}")
        return self

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    def model_for(self, role: Role) -> Model | None:
        return next((model for model in self.models if role in model.roles), None)


def load_profile(name_or_path: str) -> ModelProfile:
    """A profile shipped here, by name, or one in a file. Raises ``Misconfigured``, naming the file and the key."""
    path = _find(name_or_path)
    try:
        return ModelProfile.model_validate(yaml.safe_load(path.read_text()))
    except yaml.YAMLError as exc:
        raise Misconfigured(f"{path} is not YAML: {exc}") from exc
    except ValidationError as exc:
        raise Misconfigured(f"{path}: {'; '.join(_explained(exc))}") from exc


def _find(name_or_path: str) -> Path:
    shipped = PROFILES / f"{name_or_path}.yaml"
    path = shipped if shipped.is_file() else Path(name_or_path)
    if not path.is_file():
        choices = ", ".join(sorted(profile.stem for profile in PROFILES.glob("*.yaml")))
        raise Misconfigured(f"no model profile {name_or_path}: give one of {choices}, or the path of a YAML file")
    return path


def _explained(exc: ValidationError) -> list[str]:
    return [f"{'.'.join(map(str, error['loc'])) or 'profile'}: {error['msg']}" for error in exc.errors()]
