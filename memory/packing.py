"""The context window manager: ranked memories packed into a token budget.

Specification, "Context Window Manager": 40 % of the budget to working memory, 25 % semantic, 20 % episodic, 15 %
procedural; greedy by score within a tier; a memory that does not fit but costs more than half of its tier's
allocation is summarised into what is left; the result has working memory first, then goes by score.

Planning and assembling are two steps, because the summaries between them come from outside.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace

from memory.errors import InvalidInput
from memory.phrasing import context_text
from memory.records import Tier
from memory.scoring import Hit

Count = Callable[[str], int]

SUMMARY_SHARE = 0.5  # of the tier's allocation: a memory that costs more is worth a summary
SUMMARY_MIN_TOKENS = 16  # less than this says nothing


@dataclass(frozen=True, kw_only=True)
class BudgetRatios:
    """Shares of the budget, together at most 1."""

    working: float = 0.40
    semantic: float = 0.25
    episodic: float = 0.20
    procedural: float = 0.15

    def merged(self, overrides: Mapping[str, float]) -> BudgetRatios:
        """These shares with some replaced. Raises ``InvalidInput`` for unknown tiers and impossible shares."""
        known = {tier.value for tier in Tier}
        if unknown := sorted(set(map(str, overrides)) - known):
            raise InvalidInput(f"unknown tiers {', '.join(unknown)}; choose from {', '.join(sorted(known))}")
        if not all(math.isfinite(share) and share >= 0 for share in overrides.values()):
            raise InvalidInput("budget ratios must be finite numbers not below 0")
        merged = replace(self, **{str(tier): share for tier, share in overrides.items()})
        if sum(asdict(merged).values()) > 1 + 1e-9:
            raise InvalidInput(f"budget ratios must add up to at most 1, not {sum(asdict(merged).values()):.3f}")
        return merged


@dataclass(frozen=True, kw_only=True)
class TokenBudget:
    """What the model's window leaves for memories, in tokens."""

    window: int
    system_tokens: int
    query_tokens: int
    output_reserve: int = 4096

    @property
    def available(self) -> int:
        return max(0, self.window - self.system_tokens - self.query_tokens - self.output_reserve)


@dataclass(frozen=True, kw_only=True)
class TierUsage:
    """Tokens and memories of one tier."""

    allocated: int = 0
    used: int = 0
    dropped: int = 0  # memories left out


@dataclass(frozen=True, kw_only=True)
class PlannedItem:
    """A memory that goes in, whole or summarised."""

    hit: Hit
    tokens: int  # with the item's overhead
    fit: int | None = None  # summarise to at most this many tokens


@dataclass(frozen=True, kw_only=True)
class PackPlan:
    items: Sequence[PlannedItem]
    tiers: Mapping[Tier, TierUsage]
    budget: int
    overhead: int


@dataclass(frozen=True, kw_only=True)
class PackedItem:
    hit: Hit
    text: str
    tokens: int
    summarised: bool


@dataclass(frozen=True, kw_only=True)
class Context:
    """What goes into the window; ``used`` never exceeds ``budget``."""

    items: Sequence[PackedItem]
    tiers: Mapping[Tier, TierUsage]
    budget: int
    used: int
    dropped: int
    earlier: str = ""  # running summary of the session's messages that left it


def plan(
    hits: Sequence[Hit], budget: int, ratios: BudgetRatios, count: Count, *, hand_over: bool = False, overhead: int = 4
) -> PackPlan:
    """Choose what goes in. ``hits`` come best first; ``overhead`` tokens frame each item."""
    shares = asdict(ratios)
    items: list[PlannedItem] = []
    left_out: list[Hit] = []
    tiers: dict[Tier, TierUsage] = {}
    for tier in Tier:
        allocated = math.floor(max(0, budget) * shares[tier.value] + 1e-9)  # 100 * 0.29 is 28.999…
        taken, missed = _fill([hit for hit in hits if hit.memory.tier is tier], allocated, count, overhead)
        items += taken
        left_out += missed
        tiers[tier] = TierUsage(allocated=allocated, used=_cost(taken), dropped=len(missed))
    if hand_over:
        spare = max(0, budget) - _cost(items)
        extra = _hand_over(sorted(left_out, key=lambda hit: -hit.parts.total), spare, count, overhead)
        items += extra
        tiers = {
            tier: _with_extra(usage, [i for i in extra if i.hit.memory.tier is tier]) for tier, usage in tiers.items()
        }
    return PackPlan(items=items, tiers=tiers, budget=max(0, budget), overhead=overhead)


def _cost(items: Sequence[PlannedItem]) -> int:
    return sum(item.tokens for item in items)


def _fill(hits: Sequence[Hit], allocated: int, count: Count, overhead: int) -> tuple[list[PlannedItem], list[Hit]]:
    """Greedy by score within one tier's allocation."""
    taken: list[PlannedItem] = []
    missed: list[Hit] = []
    left = allocated
    for hit in hits:
        item = _place(hit, left, allocated, count, overhead)
        if item is None:
            missed.append(hit)
        else:
            taken.append(item)
            left -= item.tokens
    return taken, missed


def _place(hit: Hit, left: int, allocated: int, count: Count, overhead: int) -> PlannedItem | None:
    tokens = count(context_text(hit.memory)) + overhead
    if tokens <= left:
        return PlannedItem(hit=hit, tokens=tokens)
    fit = left - overhead
    if tokens > SUMMARY_SHARE * allocated and fit >= SUMMARY_MIN_TOKENS:
        return PlannedItem(hit=hit, tokens=left, fit=fit)
    return None


def _hand_over(hits: Sequence[Hit], spare: int, count: Count, overhead: int) -> list[PlannedItem]:
    """Give what the tiers left unused to the best of what was left out."""
    extra = []
    for hit in hits:
        tokens = count(context_text(hit.memory)) + overhead
        if tokens <= spare:
            extra.append(PlannedItem(hit=hit, tokens=tokens))
            spare -= tokens
    return extra


def _with_extra(usage: TierUsage, extra: Sequence[PlannedItem]) -> TierUsage:
    return replace(usage, used=usage.used + _cost(extra), dropped=usage.dropped - len(extra))


def assemble(plan: PackPlan, texts: Sequence[str], count: Count) -> Context:
    """Put the final texts in, one per planned item.

    Every text is counted again: a summary may be longer than it promised, and the budget holds all the same. A
    blank text is dropped.
    """
    items: list[PackedItem] = []
    dropped: list[Tier] = []
    used = 0
    for planned, text in zip(plan.items, texts, strict=True):
        tokens = count(text) + plan.overhead
        if not text.strip() or tokens > planned.tokens or used + tokens > plan.budget:
            dropped.append(planned.hit.memory.tier)
            continue
        used += tokens
        items.append(PackedItem(hit=planned.hit, text=text, tokens=tokens, summarised=planned.fit is not None))
    tiers = {tier: _final(usage, tier, items, dropped) for tier, usage in plan.tiers.items()}
    total = sum(usage.dropped for usage in tiers.values())
    return Context(items=sorted(items, key=_order), tiers=tiers, budget=plan.budget, used=used, dropped=total)


def _final(usage: TierUsage, tier: Tier, items: Sequence[PackedItem], dropped: Sequence[Tier]) -> TierUsage:
    used = sum(item.tokens for item in items if item.hit.memory.tier is tier)
    return replace(usage, used=used, dropped=usage.dropped + dropped.count(tier))


def _order(item: PackedItem) -> tuple[int, float, float, str]:
    """Working memory first and in the order it was said, then the rest by score."""
    memory = item.hit.memory
    if memory.tier is Tier.WORKING:
        return (0, memory.created_at.timestamp(), 0.0, str(memory.id))
    return (1, -item.hit.parts.total, 0.0, str(memory.id))
