"""How a memory is put into words: what is embedded, what its terms are counted from, and what a context shows."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from memory.records import Memory, Tier


def episode_text(content: str, *, speaker: str | None, occurred_at: datetime) -> str:
    """``[8 May 2023] Caroline: text``"""
    date = f"{occurred_at.day} {occurred_at:%B %Y}"
    return f"[{date}] {speaker}: {content}" if speaker else f"[{date}] {content}"


def embedded_text(content: str, *, speaker: str | None) -> str:
    """What an episode's vector is made from. A date would make all turns of a session alike; it is its own evidence."""
    return f"{speaker}: {content}" if speaker else content


def skill_text(skill_name: str, trigger_pattern: str) -> str:
    return f"{skill_name.replace('_', ' ')}: {trigger_pattern}"


def indexed_text(memory: Memory) -> str:
    """What the words of a memory are counted from: who and when are part of what is searched for."""
    if memory.tier is Tier.WORKING:
        return episode_text(memory.content, speaker=memory.speaker, occurred_at=memory.created_at)
    return context_text(memory)


def context_text(memory: Memory) -> str:
    """One memory as an item of a context's list; a message of the session as it is.

    Further lines are indented, so that no memory can pass for a heading or for another item.
    """
    if memory.tier is Tier.WORKING:
        return memory.content
    return "\n  ".join(_item(memory).splitlines())


def _item(memory: Memory) -> str:
    if memory.tier is Tier.EPISODIC:
        return episode_text(memory.content, speaker=memory.speaker, occurred_at=memory.created_at)
    if memory.tier is Tier.PROCEDURAL:
        return f"{memory.content}{_steps(memory.details)}"
    return memory.content


def _steps(details: Mapping[str, Any]) -> str:
    steps = details.get("policy", {}).get("steps") or details.get("tool_sequence")
    return "" if not steps else " | steps: " + "; ".join(str(step) for step in steps)
