"""Makes a folder that vLLM can load out of a package that carries a quantised model. Runs in ``.venv-llm`` only."""

from __future__ import annotations

import json
import shutil
from importlib.util import find_spec
from pathlib import Path

from configs.model_profile import PACKAGE
from memory.errors import Misconfigured


def is_local(source: str) -> bool:
    """Nothing has to be fetched for it."""
    return source.startswith(PACKAGE) or Path(source).is_dir()


def prepared(source: str, folder: Path) -> str:
    """What vLLM is given: the source itself, or the folder made from a package, at the first start."""
    if not source.startswith(PACKAGE):
        return source
    package = source.removeprefix(PACKAGE)
    made = folder / package
    if not made.is_dir():
        scratch = folder / f"{package}.new"
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir(parents=True)
        _dequantise(_gguf(package), scratch)
        scratch.rename(made)  # whole or not at all
    return str(made)


def _gguf(package: str) -> Path:
    spec = find_spec(package.replace("-", "_"))
    places = [] if spec is None else [Path(place) for place in spec.submodule_search_locations or []]
    found = [file for place in places for file in place.glob("*.gguf")]
    if not found:
        raise Misconfigured(f"the package {package} is not installed or holds no .gguf file")
    return found[0]


def _dequantise(gguf: Path, folder: Path) -> None:
    """The model in bfloat16, with tokenizer and chat template.

    Saved by hand: the library's own saving refuses a model that was quantised. An output layer that is tied to the
    input embedding is left out, as its format wants.
    """
    import torch
    from safetensors.torch import save_file
    from transformers import AutoModelForCausalLM, AutoTokenizer

    where = {"pretrained_model_name_or_path": str(gguf.parent), "gguf_file": gguf.name}
    AutoTokenizer.from_pretrained(**where).save_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(**where, dtype=torch.bfloat16)
    tied = {"lm_head.weight"} if model.config.tie_word_embeddings else set()
    tensors = {name: tensor.contiguous() for name, tensor in model.state_dict().items() if name not in tied}
    save_file(tensors, str(folder / "model.safetensors"), metadata={"format": "pt"})
    config = {**model.config.to_dict(), "architectures": [type(model).__name__]}
    config.pop("quantization_config", None)
    (folder / "config.json").write_text(json.dumps(config, indent=2, default=str))
