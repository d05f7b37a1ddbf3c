"""What a pooled connection sees, and when."""

from __future__ import annotations

from memory.records import TenantId
from stores.postgres.database import Database

SEEN = "SELECT current_setting('mnemoray.tenant', true) AS tenant, pg_current_xact_id() AS transaction"


async def test_a_pipeline_is_one_transaction_of_its_tenant_and_leaves_nothing_behind(postgres_dsn: str) -> None:
    database = Database(postgres_dsn, pool_size=1)
    await database.open()
    try:
        for tenant in ("tenant-a", "tenant-b"):
            async with database.pipelined(TenantId(tenant)) as connection:
                cursors = [await connection.execute(SEEN) for _ in range(12)]
                early = [await cursor.fetchone() for cursor in cursors]
                late = await (await connection.execute(SEEN)).fetchone()
            assert {(row or {})["tenant"] for row in [*early, late]} == {tenant}
            assert len({str((row or {})["transaction"]) for row in [*early, late]}) == 1
        async with database.connection() as connection:
            (row,) = await (await connection.execute(SEEN)).fetchall()
            assert row["tenant"] in (None, "")
    finally:
        await database.close()
