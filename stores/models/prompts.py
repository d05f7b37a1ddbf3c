"""Prompts: text files with a version, which is stored with what they produced."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from memory.errors import Misconfigured

_VERSION = "version: "


@dataclass(frozen=True, kw_only=True)
class Prompt:
    name: str
    version: str
    text: str

    @property
    def label(self) -> str:
        """``classify/1``"""
        return f"{self.name}/{self.version}"


def load_prompt(name: str, *, folder: Path | None = None) -> Prompt:
    """``<name>.md`` of ``folder``, or the one that ships. Raises ``Misconfigured`` for a file that is no prompt."""
    file = (folder or resources.files("configs").joinpath("prompts")) / f"{name}.md"
    try:
        first, _, text = file.read_text("utf-8").partition("\n")
    except (OSError, UnicodeDecodeError) as exc:
        raise Misconfigured(f"the prompt {file} cannot be read: {exc}") from exc
    if not first.startswith(_VERSION) or not first.removeprefix(_VERSION).strip() or not text.strip():
        raise Misconfigured(f"the prompt {file} must begin with a line '{_VERSION}...' and have a text")
    return Prompt(name=name, version=first.removeprefix(_VERSION).strip(), text=text.strip())
