"""Profiles of served models: what is accepted, and what an error names."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from cluster.models.server import ModelServer, settings_of
from cluster.paths import DataDir
from configs.model_profile import PROFILES, Role, load_profile
from configs.settings import Settings
from memory.errors import Misconfigured

MODEL = {"name": "m", "source": "org/m", "roles": ["classifier"], "kv_cache_gib": 1}


def written(folder: Path, **changes: object) -> str:
    file = folder / "models.yaml"
    file.write_text(yaml.safe_dump({"models": [MODEL | changes]}))
    return str(file)


@pytest.mark.parametrize("name", sorted(file.stem for file in PROFILES.glob("*.yaml")))
def test_every_shipped_profile_serves_classifier_and_summarizer(name: str) -> None:
    profile = load_profile(name)
    assert profile.model_for(Role.CLASSIFIER) is not None
    assert profile.model_for(Role.SUMMARIZER) is not None


def test_a_file_may_lie_anywhere(tmp_path: Path) -> None:
    assert load_profile(written(tmp_path)).models[0].name == "m"


def test_a_profile_that_does_not_exist_is_an_error_with_the_choices() -> None:
    with pytest.raises(Misconfigured, match="cpu-smollm2, gpu-one, gpu-several"):
        load_profile("gpu-none")


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"max_model_length": 9}, r"models\.0\.max_model_length: Extra inputs"),
        ({"max_num_seqs": 0}, r"models\.0\.max_num_seqs: Input should be greater"),
        ({"dtype": "int3"}, r"models\.0\.dtype: Input should be 'auto'"),
        ({"roles": ["poet"]}, r"models\.0\.roles\.0: Input should be 'classifier'"),
        ({"name": "a b"}, r"models\.0\.name: String should match"),
        ({"autoscaling": {"min_replicas": 3, "max_replicas": 2}}, r"models\.0\.autoscaling: .*min_replicas \(3\)"),
        ({"autoscaling": {"replicas": 3}}, r"models\.0\.autoscaling\.replicas: Extra inputs"),
        ({"kv_cache_gib": None}, r"models\.0: .*needs kv_cache_gib"),
        ({"accelerator": "L4"}, r"models\.0: .*accelerator L4 without gpus"),
        ({"roles": ["embedding"]}, r"models\.0: .*the section embedding need each other"),
        ({"roles": ["embedding", "classifier"], "embedding": {"dimension": 8}}, r"models\.0: .*no other role"),
    ],
)
def test_what_is_wrong_is_named_with_its_file_and_key(tmp_path: Path, changes: dict[str, object], key: str) -> None:
    file = written(tmp_path, **changes)
    with pytest.raises(Misconfigured, match=key) as caught:
        load_profile(file)
    assert file in str(caught.value)


@pytest.mark.parametrize("text", ["", "models: []", "models: {", "[1, 2]", "port: 8790"])
def test_a_file_that_is_no_profile_is_named(tmp_path: Path, text: str) -> None:
    file = tmp_path / "models.yaml"
    file.write_text(text)
    with pytest.raises(Misconfigured, match=str(file)):
        load_profile(str(file))


def test_a_role_has_one_model_and_a_name_too(tmp_path: Path) -> None:
    file = tmp_path / "models.yaml"
    file.write_text(yaml.safe_dump({"models": [MODEL, MODEL | {"name": "n"}]}))
    with pytest.raises(Misconfigured, match="more than one model has the role classifier"):
        load_profile(str(file))
    file.write_text(yaml.safe_dump({"models": [MODEL, MODEL | {"roles": ["summarizer"]}]}))
    with pytest.raises(Misconfigured, match="more than one model has the name m"):
        load_profile(str(file))


def test_without_its_environment_the_way_out_is_named(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match="run 'make venv-llm'"):
        ModelServer(load_profile("cpu-smollm2"), DataDir(tmp_path), python=tmp_path / "none" / "bin" / "python")


def test_the_api_is_told_where_the_models_are(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.touch()
    profile = load_profile(written(tmp_path))
    assert ModelServer(profile, DataDir(tmp_path), python=python).settings() == {
        "MNEMORAY_MODELS__URL": "http://127.0.0.1:8790/v1",
        "MNEMORAY_MODELS__CLASSIFIER": "m",
        "MNEMORAY_MODELS__CONTEXT_WINDOW": "8192",
        "MNEMORAY_MODELS__MAX_OUTPUT_TOKENS": "1024",
    }


@pytest.mark.parametrize("name", [path.stem for path in PROFILES.glob("*.yaml")])
def test_a_profile_becomes_settings_that_fit_its_models(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    profile = load_profile(name)
    for key, value in settings_of(profile).items():
        monkeypatch.setenv(key, value)
    settings = Settings()
    writing, embedding = profile.model_for(Role.CLASSIFIER), profile.model_for(Role.EMBEDDING)
    assert writing is not None
    assert (settings.models.url, settings.models.classifier) == (profile.url, writing.name)
    assert settings.models.max_output_tokens * 4 <= settings.models.context_window <= writing.max_model_len
    if embedding is not None and embedding.embedding is not None:
        assert settings.embedding.url == profile.url
        assert settings.embedding.dimension == embedding.embedding.dimension
        assert settings.embedding.query_prefix == embedding.embedding.query_prefix
