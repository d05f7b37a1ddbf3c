-- name: episodic
-- The API's flush; served by the primary key of the months from earliest to latest. Rows that somebody is changing
-- are skipped, so it never waits while it holds a lock, and nobody can wait in a circle with it.
WITH held AS MATERIALIZED (
    SELECT m.id, m.created_at, seen.count, seen.at
    FROM episodic_memory AS m
    JOIN unnest(%(ids)s::uuid[], %(created)s::timestamptz[], %(counts)s::int[], %(at)s::timestamptz[])
        AS seen (id, created_at, count, at) ON m.id = seen.id AND m.created_at = seen.created_at
    WHERE m.tenant_id = %(tenant_id)s AND m.created_at BETWEEN %(earliest)s AND %(latest)s
    ORDER BY m.id
    FOR NO KEY UPDATE OF m SKIP LOCKED)
UPDATE episodic_memory AS m
SET access_count = m.access_count + held.count, last_accessed_at = GREATEST(m.last_accessed_at, held.at)
FROM held
WHERE m.id = held.id AND m.created_at = held.created_at AND m.created_at BETWEEN %(earliest)s AND %(latest)s
RETURNING m.id

-- name: episodic_one
-- The API's flush, for a row that was skipped: waits for it, alone in its transaction; served by the same key.
UPDATE episodic_memory AS m
SET access_count = m.access_count + seen.count, last_accessed_at = GREATEST(m.last_accessed_at, seen.at)
FROM unnest(%(ids)s::uuid[], %(created)s::timestamptz[], %(counts)s::int[], %(at)s::timestamptz[])
        AS seen (id, created_at, count, at)
WHERE m.tenant_id = %(tenant_id)s AND m.id = seen.id AND m.created_at = seen.created_at
  AND m.created_at BETWEEN %(earliest)s AND %(latest)s
RETURNING m.id

-- name: semantic
-- The API's flush; served by the primary key of each placement. Rows that somebody is changing are skipped,
-- so it never waits while it holds a lock, and nobody can wait in a circle with it.
WITH held AS MATERIALIZED (
    SELECT m.id, m.placement, seen.count, seen.at
    FROM semantic_memory AS m
    JOIN unnest(%(ids)s::uuid[], %(created)s::timestamptz[], %(counts)s::int[], %(at)s::timestamptz[])
        AS seen (id, created_at, count, at) ON m.id = seen.id
    WHERE m.tenant_id = %(tenant_id)s
    ORDER BY m.id
    FOR NO KEY UPDATE OF m SKIP LOCKED)
UPDATE semantic_memory AS m
SET access_count = m.access_count + held.count, last_accessed_at = GREATEST(m.last_accessed_at, held.at)
FROM held
WHERE m.id = held.id AND m.placement = held.placement
RETURNING m.id

-- name: semantic_one
-- The API's flush, for a row that was skipped: waits for it, alone in its transaction; served by the same key.
UPDATE semantic_memory AS m
SET access_count = m.access_count + seen.count, last_accessed_at = GREATEST(m.last_accessed_at, seen.at)
FROM unnest(%(ids)s::uuid[], %(created)s::timestamptz[], %(counts)s::int[], %(at)s::timestamptz[])
        AS seen (id, created_at, count, at)
WHERE m.tenant_id = %(tenant_id)s AND m.id = seen.id
RETURNING m.id

-- name: procedural
-- The API's flush; served by the primary key. Rows that somebody is changing are skipped,
-- so it never waits while it holds a lock, and nobody can wait in a circle with it.
WITH held AS MATERIALIZED (
    SELECT m.id, seen.count, seen.at
    FROM procedural_memory AS m
    JOIN unnest(%(ids)s::uuid[], %(created)s::timestamptz[], %(counts)s::int[], %(at)s::timestamptz[])
        AS seen (id, created_at, count, at) ON m.id = seen.id
    WHERE m.tenant_id = %(tenant_id)s
    ORDER BY m.id
    FOR NO KEY UPDATE OF m SKIP LOCKED)
UPDATE procedural_memory AS m
SET access_count = m.access_count + held.count, last_accessed_at = GREATEST(m.last_accessed_at, held.at)
FROM held
WHERE m.id = held.id
RETURNING m.id

-- name: procedural_one
-- The API's flush, for a row that was skipped: waits for it, alone in its transaction; served by the same key.
UPDATE procedural_memory AS m
SET access_count = m.access_count + seen.count, last_accessed_at = GREATEST(m.last_accessed_at, seen.at)
FROM unnest(%(ids)s::uuid[], %(created)s::timestamptz[], %(counts)s::int[], %(at)s::timestamptz[])
        AS seen (id, created_at, count, at)
WHERE m.tenant_id = %(tenant_id)s AND m.id = seen.id
RETURNING m.id
