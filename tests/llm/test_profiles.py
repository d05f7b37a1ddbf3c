"""The shipped profiles in the terms of the Ray and the vLLM that are installed; those for GPUs too, without one."""

from __future__ import annotations

import dataclasses
import warnings

import pytest

from configs.model_profile import PROFILES, ModelProfile, load_profile

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # vLLM's own, while it is imported
    from vllm.engine.arg_utils import AsyncEngineArgs

    from cluster.models.application import engine_kwargs, llm_config

ARGUMENTS = {field.name for field in dataclasses.fields(AsyncEngineArgs)}


@pytest.fixture(params=sorted(file.stem for file in PROFILES.glob("*.yaml")))
def profile(request: pytest.FixtureRequest) -> ModelProfile:
    return load_profile(request.param)


def test_the_engine_knows_every_argument(profile: ModelProfile) -> None:
    for model in profile.models:
        assert set(engine_kwargs(model)) <= ARGUMENTS


def test_ray_places_every_worker(profile: ModelProfile) -> None:
    for model in profile.models:
        config = llm_config(model, "/somewhere")
        assert config.accelerator_config.kind == ("gpu" if model.gpus else "cpu")
        assert len(config.get_engine_config().placement_bundles) == model.tensor_parallel
        assert config.deployment_config["autoscaling_config"]["max_replicas"] == model.autoscaling.max_replicas
