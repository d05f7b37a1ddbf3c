"""Typed settings: the only place that reads the environment.

A value comes from, in order: keyword arguments, ``MNEMORAY_*`` environment variables (nested names joined by
``__``), the YAML file named by ``MNEMORAY_CONFIG`` or the profile named by ``MNEMORAY_PROFILE``, the defaults here.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict, YamlConfigSettingsSource

from memory.trust import PROMOTION_FLOOR

PROFILES = Path(__file__).parent / "profiles"


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class IngestSettings(_Section):
    """The write path between the API and the shards."""

    max_stream_length: int = Field(50_000, gt=0, description="entries a partition may hold before writes get 429")
    batch_size: int = Field(64, gt=0, le=1024, description="entries a shard handles in one transaction")
    block_ms: int = Field(2_000, gt=0, description="how long a shard waits for the next entry")
    max_attempts: int = Field(5, gt=0, description="deliveries before an entry is dead-lettered")
    retry_backoff_s: float = Field(1.0, gt=0, description="wait after a failed batch, doubled up to 30 s")
    wait_timeout_s: float = Field(10.0, gt=0, description="how long wait=persistent waits before it answers 202")
    promotion_floor: float = Field(
        PROMOTION_FLOOR,
        ge=0.0,
        le=1.0,
        description="confidence below which facts of the channels tool and external go into quarantine",
    )
    idempotency_ttl_s: int = Field(86_400, gt=0, description="how long Valkey remembers an idempotency key")


class WorkingMemorySettings(_Section):
    """Bounds of one session's working memory."""

    ttl_s: int = Field(86_400, gt=0, description="time to live, refreshed on use")
    max_messages: int = Field(200, gt=0)
    max_bytes: int = Field(1_048_576, gt=0, description="messages, as stored")
    summary_after: int = Field(20, gt=0, description="messages that left a session before they are summarised")
    summary_tokens: int = Field(400, gt=0, description="of the running summary of what left")
    max_variables_bytes: int = Field(262_144, gt=0, description="variables and reasoning state, as stored")


class RecallSettings(_Section):
    """Search and context."""

    exact_below: int = Field(50_000, ge=0, description="live rows of a scope up to which the scan is exact")
    ef_search: int = Field(500, ge=1, le=1000)
    max_scan_tuples: int = Field(200_000, ge=1)
    candidates: int = Field(
        200, ge=1, le=1000, description="candidates fetched per tier for a user who is not resident"
    )
    similarity_floor: float = Field(0.0, ge=0.0, le=1.0)
    language: str = Field("english", description="of the memories, for stemming and stop words: a Snowball algorithm")
    resident_bytes: int = Field(2**30, ge=0, description="for resident indexes, per API replica; 0 keeps none")
    load_first_below: int = Field(
        2_000, ge=0, description="a user with at most so many memories is loaded before the first search is answered"
    )
    query_cache_size: int = Field(1024, ge=0)
    access_flush_s: float = Field(2.0, gt=0, description="how often access statistics are written")
    context_window: int = Field(128_000, gt=0, description="window of the served model, in tokens")


class EmbeddingSettings(_Section):
    """The embedding model; its dimension is fixed when the database is created."""

    model: str = "all-MiniLM-L6-v2-onnx-int8"
    dimension: int = Field(384, gt=0, le=2000)
    threads: int = Field(1, ge=1, description="of the built-in model")
    url: str | None = Field(None, description="an OpenAI-compatible server that has the model; unset: the built-in one")
    api_key: str | None = None
    query_prefix: str = Field("", description="that the served model wants before a query")
    document_prefix: str = Field("", description="the same before a text that is stored")
    timeout_s: float = Field(10.0, gt=0, description="of one request to the server")


class ModelSettings(_Section):
    """Language models behind an OpenAI-compatible URL; without a URL the built-in rules do their work."""

    url: str | None = Field(None, description="such as http://127.0.0.1:8100/v1")
    api_key: str | None = None
    classifier: str | None = Field(None, description="model that extracts facts and procedures; unset: the rules")
    summarizer: str | None = Field(None, description="model that summarises; unset: extractive summaries")
    context_window: int = Field(8_192, ge=512, description="of these models, in tokens, prompt and answer included")
    max_output_tokens: int = Field(1_024, ge=16, description="of one classification")
    timeout_s: float = Field(60.0, gt=0, description="of one attempt")
    attempts: int = Field(3, ge=1, le=10, description="per interaction, before the built-in rules take its place")
    concurrency: int = Field(16, ge=1, le=1_024, description="requests at a time, per shard and per API replica")
    retry_after_s: float = Field(60.0, gt=0, description="until an interaction that the model failed at is tried again")
    max_deliveries: int = Field(
        5, ge=1, description="of an interaction to the model, before the rules have the last word"
    )
    summary_deadline_s: float = Field(5.0, gt=0, description="a context waits no longer for a summary")
    prompts: Path | None = Field(None, description="a folder with prompts that take the place of the shipped ones")

    @model_validator(mode="after")
    def _is_complete(self) -> ModelSettings:
        if (self.classifier or self.summarizer) and not self.url:
            raise ValueError("models.classifier and models.summarizer need models.url")
        return self


class ServeSettings(_Section):
    """The HTTP API."""

    host: str = "127.0.0.1"
    port: int = Field(8787, ge=1, le=65_534)
    replicas: int = Field(1, ge=1)
    max_body_bytes: int = Field(4_194_304, gt=0)


class Settings(BaseSettings):
    """Everything that can be configured."""

    model_config = SettingsConfigDict(
        env_prefix="MNEMORAY_",
        env_nested_delimiter="__",
        extra="forbid",
        frozen=True,
        nested_model_default_partial_update=True,
    )

    profile: str | None = Field(None, description="embedded, node or cluster; or MNEMORAY_CONFIG=path to a YAML file")
    data_dir: Path | None = Field(None, description="where the embedded servers keep their data")
    postgres_dsn: str | None = Field(None, description="libpq connection string; unset starts the embedded server")
    postgres_pool_size: int = Field(8, ge=1)
    redis_url: str | None = Field(None, description="redis://, rediss:// or unix://; unset starts the embedded server")
    redis_cluster: bool = Field(False, description="the URL is one node of a Redis or Valkey Cluster")
    ray_address: str | None = Field(None, description="address of a running Ray cluster; unset starts one")
    api_keys: dict[str, str] = Field(default_factory=dict, description="API key -> tenant id")
    admin_keys: dict[str, str] = Field(
        default_factory=dict, description="the same for keys that may search over all agents of their tenant"
    )
    partitions: int = Field(64, ge=1, le=4096, description="fixed when the database is created")
    shards: int = Field(2, ge=1)
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    ingest: IngestSettings = IngestSettings()
    working: WorkingMemorySettings = WorkingMemorySettings()
    recall: RecallSettings = RecallSettings()
    embedding: EmbeddingSettings = EmbeddingSettings()
    serve: ServeSettings = ServeSettings()
    models: ModelSettings = ModelSettings()

    @model_validator(mode="after")
    def _data_dir_is_absolute(self) -> Settings:
        if self.data_dir is not None and not self.data_dir.is_absolute():
            raise ValueError(f"data_dir must be an absolute path, not {self.data_dir}")
        return self

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return init_settings, env_settings, YamlConfigSettingsSource(settings_cls, yaml_file=_yaml_file())


def _yaml_file() -> Path:
    """The YAML file that the environment names; a profile that does not exist is an error with the choices."""
    explicit = os.environ.get("MNEMORAY_CONFIG")
    path = Path(explicit) if explicit else PROFILES / f"{os.environ.get('MNEMORAY_PROFILE', 'embedded')}.yaml"
    if not path.is_file():
        choices = ", ".join(sorted(profile.stem for profile in PROFILES.glob("*.yaml")))
        raise ValueError(
            f"{path} does not exist; set MNEMORAY_PROFILE to one of {choices}, or MNEMORAY_CONFIG to a file"
        )
    return path


def default_data_dir() -> Path:
    """``/var/lib/mnemoray`` for root, ``$XDG_DATA_HOME/mnemoray`` for everyone else."""
    if os.geteuid() == 0:
        return Path("/var/lib/mnemoray")
    base = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(base) / "mnemoray"
