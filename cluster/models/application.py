"""A profile as a Ray Serve application. Runs in ``.venv-llm`` only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ray.serve import Application
from ray.serve.llm import LLMConfig, build_openai_app

from cluster.models.ingress import Ingress
from configs.model_profile import Model, ModelProfile

GIB = 2**30
PREFIX = "LLMServer:"  # Ray's, before the name of every deployment of a model


def build_application(profile: ModelProfile, sources: Mapping[str, str]) -> Application:
    """One deployment a model behind one OpenAI-compatible ingress; ``sources`` says where each model's files are."""
    application: Application = build_openai_app(
        {
            "llm_configs": [llm_config(model, sources[model.name]) for model in profile.models],
            "ingress_deployment_config": {"num_replicas": profile.ingress_replicas},
            "ingress_cls_config": {
                "ingress_cls": Ingress,
                "ingress_extra_kwargs": {"expected": _expected(profile)},
            },
        }
    )
    return application


def _expected(profile: ModelProfile) -> dict[str, str]:
    """Deployments by model, without those that may have no replica: a request is what starts one."""
    always = (model for model in profile.models if model.autoscaling.min_replicas > 0)
    return {model.name: f"{PREFIX}{_deployment(model)}" for model in always}


def _deployment(model: Model) -> str:
    return model.name.replace("/", "--")


def llm_config(model: Model, source: str) -> LLMConfig:
    bundle = {"CPU": model.cpus} | ({"GPU": model.gpus} if model.gpus else {})
    return LLMConfig(
        model_loading_config={"model_id": model.name, "model_source": source},
        accelerator_type=model.accelerator,
        placement_group_config={"bundles": [bundle] * model.tensor_parallel},
        deployment_config={"name": _deployment(model), "autoscaling_config": model.autoscaling.model_dump()},
        engine_kwargs=engine_kwargs(model),
    )


def engine_kwargs(model: Model) -> dict[str, Any]:
    """What the profile says in vLLM's terms; its ``engine_kwargs`` have the last word."""
    cache = {} if model.kv_cache_gib is None else {"kv_cache_memory_bytes": int(model.kv_cache_gib * GIB)}
    return {
        "dtype": model.dtype,
        "max_model_len": model.max_model_len,
        "max_num_seqs": model.max_num_seqs,
        "tensor_parallel_size": model.tensor_parallel,
        **cache,
        **model.engine_kwargs,
    }
