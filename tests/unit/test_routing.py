from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory.errors import InvalidInput
from memory.records import AgentId, Partition, TenantId
from memory.routing import PARTITIONS, assignments, owner_of, partition_of

ids = st.text(min_size=1, max_size=64).filter(lambda text: text.isprintable())
shard_names = st.lists(st.text("abcdefgh-0123456789", min_size=1, max_size=12), min_size=1, max_size=8, unique=True)


@pytest.mark.parametrize(
    ("tenant", "agent", "partition"),
    [
        ("tenant-a", "agent", 5),
        ("acme", "support-bot", 36),
        ("ab", "c", 3),
        ("a", "bc", 51),
        ("租户", "агент", 6),
    ],
)
def test_partitions_never_change(tenant: str, agent: str, partition: int) -> None:
    """Keys and streams already written carry these numbers."""
    assert partition_of(TenantId(tenant), AgentId(agent)) == partition


def test_owners_never_change() -> None:
    shards = ["shard-0", "shard-1", "shard-2"]
    assert [owner_of(Partition(number), shards)[-1] for number in range(8)] == list("12212210")


@given(ids, ids, st.integers(1, 1000))
def test_a_partition_is_within_range(tenant: str, agent: str, partitions: int) -> None:
    assert 0 <= partition_of(TenantId(tenant), AgentId(agent), partitions=partitions) < partitions


def test_where_one_id_ends_and_the_other_begins_counts() -> None:
    moved = [(f"{number}a", "b") for number in range(50)], [(f"{number}", "ab") for number in range(50)]
    first, second = ([partition_of(TenantId(t), AgentId(a)) for t, a in pairs] for pairs in moved)
    assert first != second


def test_agents_spread_over_all_partitions() -> None:
    counts = [0] * PARTITIONS
    for number in range(6400):
        counts[partition_of(TenantId("t"), AgentId(f"agent-{number}"))] += 1
    assert min(counts) > 50
    assert max(counts) < 170


def test_without_shards_nobody_owns() -> None:
    with pytest.raises(InvalidInput, match="at least one shard"):
        owner_of(Partition(0), [])


@given(shard_names, st.randoms())
def test_the_order_of_the_shards_is_irrelevant(shards: list[str], random: Random) -> None:
    shuffled = list(shards)
    random.shuffle(shuffled)
    assert assignments(shards) == assignments(shuffled)


@given(shard_names, st.just("the-new-one"))
def test_a_new_shard_takes_partitions_only_for_itself(shards: list[str], new: str) -> None:
    before, after = assignments(shards), assignments([*shards, new])
    assert {after[number] for number in before if before[number] != after[number]} <= {new}


@given(shard_names.filter(lambda shards: len(shards) > 1))
def test_a_leaving_shard_gives_away_only_what_it_had(shards: list[str]) -> None:
    gone, *rest = shards
    before, after = assignments(shards), assignments(rest)
    assert all(after[number] == before[number] for number in before if before[number] != gone)


def test_partitions_are_shared_out_evenly_enough() -> None:
    owners = list(assignments([f"shard-{number}" for number in range(4)]).values())
    assert len(owners) == PARTITIONS
    assert all(6 <= owners.count(shard) <= 28 for shard in set(owners))
    assert len(set(owners)) == 4
