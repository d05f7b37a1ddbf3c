-- name: episodic
-- The API's flush: primary keys, in order, so that two flushes cannot wait for each other.
UPDATE episodic_memory AS m SET access_count = m.access_count + a.count, last_accessed_at = a.at
FROM unnest(%(ids)s::uuid[], %(created)s::timestamptz[], %(counts)s::int[], %(at)s::timestamptz[])
    AS a (id, created_at, count, at)
WHERE m.id = a.id AND m.created_at = a.created_at AND m.tenant_id = %(tenant_id)s

-- name: semantic
UPDATE semantic_memory AS m SET access_count = m.access_count + a.count, last_accessed_at = a.at
FROM unnest(%(ids)s::uuid[], %(created)s::timestamptz[], %(counts)s::int[], %(at)s::timestamptz[])
    AS a (id, created_at, count, at)
WHERE m.id = a.id AND m.tenant_id = %(tenant_id)s

-- name: procedural
UPDATE procedural_memory AS m SET access_count = m.access_count + a.count, last_accessed_at = a.at
FROM unnest(%(ids)s::uuid[], %(created)s::timestamptz[], %(counts)s::int[], %(at)s::timestamptz[])
    AS a (id, created_at, count, at)
WHERE m.id = a.id AND m.tenant_id = %(tenant_id)s
