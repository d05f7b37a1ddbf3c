"""Routing: agent -> partition -> shard."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from memory.errors import InvalidInput
from memory.records import AgentId, Partition, TenantId

PARTITIONS = 64


def partition_of(tenant_id: TenantId, agent_id: AgentId, *, partitions: int = PARTITIONS) -> Partition:
    """BLAKE2b (8 bytes, big-endian) of the length-prefixed UTF-8 ids, modulo ``partitions``. Never changes."""
    return Partition(_hash(tenant_id, agent_id) % partitions)


def owner_of(partition: Partition, shards: Sequence[str]) -> str:
    """The shard with the highest random weight for ``partition`` (rendezvous hashing, Thaler and Ravishankar 1996).

    A shard that joins takes only what it wins; one that leaves gives away only what it had.
    """
    if not shards:
        raise InvalidInput("a partition needs at least one shard; set shards to 1 or more")
    return max(shards, key=lambda shard: (_hash(str(partition), shard), shard))


def assignments(shards: Sequence[str], *, partitions: int = PARTITIONS) -> dict[Partition, str]:
    """The owner of every partition."""
    return {Partition(number): owner_of(Partition(number), shards) for number in range(partitions)}


def _hash(*parts: str) -> int:
    digest = hashlib.blake2b(digest_size=8)
    for part in parts:
        data = part.encode()
        digest.update(len(data).to_bytes(4, "big") + data)
    return int.from_bytes(digest.digest(), "big")
