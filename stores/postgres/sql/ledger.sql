-- name: settle
-- The shard: how a write ended. The first end stays, but for a dead letter that was replayed.
INSERT INTO write_ledger AS l
    (operation_id, tenant_id, agent_id, state, reason, memory_ids, idempotency_hash, attempts, accepted_at)
VALUES (%(operation_id)s, %(tenant_id)s, %(agent_id)s, %(state)s, %(reason)s, %(memory_ids)s, %(idempotency_hash)s,
        %(attempts)s, %(accepted_at)s)
ON CONFLICT (operation_id) DO UPDATE
SET state = EXCLUDED.state, reason = EXCLUDED.reason, memory_ids = EXCLUDED.memory_ids,
    attempts = EXCLUDED.attempts, settled_at = now()
WHERE l.state = 'dead_lettered'

-- name: find
-- GET operation; served by the primary key.
SELECT operation_id, agent_id, state, reason, memory_ids, attempts, settled_at FROM write_ledger
WHERE operation_id = %(id)s AND tenant_id = %(tenant_id)s

-- name: find_idempotent
-- The shard: first writes under these keys. Served by uq_ledger_idempotency.
SELECT idempotency_hash, operation_id FROM write_ledger
WHERE tenant_id = %(tenant_id)s AND agent_id = %(agent_id)s AND idempotency_hash = ANY(%(hashes)s)
  AND idempotency_hash IS NOT NULL AND state <> 'duplicate'

-- name: counts
-- GET ledger; served by idx_ledger_tenant_state.
SELECT state, count(*) AS writes FROM write_ledger WHERE tenant_id = %(tenant_id)s GROUP BY state

-- name: add_dead_letter
-- The shard: a write that failed too often; not one that was deleted meanwhile, by itself or with its user.
INSERT INTO dead_letters (id, tenant_id, agent_id, user_id, partition, payload, content, error, attempts)
SELECT %(id)s::uuid, %(tenant_id)s::text, %(agent_id)s::text, %(user_id)s::text, %(partition)s, %(payload)s,
       %(content)s, %(error)s, %(attempts)s
WHERE NOT EXISTS (SELECT 1 FROM tombstones WHERE memory_id = %(id)s::uuid AND tenant_id = %(tenant_id)s::text)
  AND NOT EXISTS (SELECT 1 FROM user_deletions WHERE tenant_id = %(tenant_id)s::text AND agent_id = %(agent_id)s::text
                  AND user_id = %(user_id)s::text AND at >= %(accepted_at)s)
ON CONFLICT (id) DO UPDATE SET error = EXCLUDED.error, attempts = EXCLUDED.attempts, failed_at = now()

-- name: list_dead_letters
-- GET dead letters; served by idx_dead_letters_tenant.
SELECT id, agent_id, attempts, error, left(content, 500) AS content, failed_at FROM dead_letters
WHERE tenant_id = %(tenant_id)s AND (failed_at, id) > (%(after)s, %(after_id)s)
ORDER BY failed_at, id LIMIT %(limit)s

-- name: remove_dead_letter
-- Replay and drop; served by the primary key.
DELETE FROM dead_letters WHERE id = %(id)s AND tenant_id = %(tenant_id)s RETURNING payload, agent_id

-- name: reopen
-- Replay: the write is pending again.
DELETE FROM write_ledger WHERE operation_id = %(id)s AND tenant_id = %(tenant_id)s AND state = 'dead_lettered'

-- name: reject
-- Drop: the write is given up.
UPDATE write_ledger SET state = 'rejected', reason = %(reason)s, settled_at = now()
WHERE operation_id = %(id)s AND tenant_id = %(tenant_id)s AND state = 'dead_lettered'
