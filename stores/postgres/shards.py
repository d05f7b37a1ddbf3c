"""Which shard owns which partition, under which epoch."""

from __future__ import annotations

from collections.abc import Mapping

from memory.errors import Fenced
from memory.records import Partition
from stores.postgres import queries
from stores.postgres.database import Connection, Database

_SQL = queries.load("shards")


class ShardStore:
    """Assignments of partitions to shards."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def assign(self, wanted: Mapping[Partition, str]) -> int:
        """Give every partition its owner in one transaction; returns how many changed hands.

        Waits for transactions of the old owners; from then on theirs are fenced off.
        """
        moved = 0
        async with self._database.connection() as connection, connection.transaction():
            for partition, shard in sorted(wanted.items()):
                cursor = await connection.execute(_SQL["assign"], {"partition": partition, "shard": shard})
                moved += cursor.rowcount
        return moved

    async def owned(self, shard: str) -> dict[Partition, int]:
        """The partitions of a shard and their epochs."""
        async with self._database.connection() as connection:
            rows = await (await connection.execute(_SQL["owned"], {"shard": shard})).fetchall()
        return {Partition(row["partition"]): row["epoch"] for row in rows}


async def fence(connection: Connection, partition: Partition, shard: str, epoch: int) -> None:
    """Raises ``Fenced`` unless the shard holds the partition under this epoch until the transaction ends."""
    key = {"partition": partition, "shard": shard, "epoch": epoch}
    if await (await connection.execute(_SQL["fence"], key)).fetchone() is None:
        raise Fenced(f"{shard} does not own partition {partition} under epoch {epoch} any more")
