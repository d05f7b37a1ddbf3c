-- name: get_episodic
-- One memory by id; served by the primary key of each month.
SELECT * FROM episodic_memory
WHERE id = %(id)s AND tenant_id = %(tenant_id)s AND agent_id = %(agent_id)s
  AND NOT is_deleted AND (expires_at IS NULL OR expires_at > now())

-- name: get_semantic
-- One fact by id, superseded ones too; served by the primary key of each placement.
SELECT * FROM semantic_memory
WHERE id = %(id)s AND tenant_id = %(tenant_id)s AND agent_id = %(agent_id)s
  AND NOT is_deleted AND (expires_at IS NULL OR expires_at > now())

-- name: get_procedural
SELECT * FROM procedural_memory
WHERE id = %(id)s AND tenant_id = %(tenant_id)s AND agent_id = %(agent_id)s

-- name: sources
-- Served by the primary key.
SELECT source_id FROM memory_sources WHERE memory_id = %(id)s AND tenant_id = %(tenant_id)s ORDER BY source_id

-- name: list_episodic
-- GET memories; served by idx_episodic_scope or idx_episodic_agent_recent.
SELECT * FROM episodic_memory
WHERE tenant_id = %(tenant_id)s AND agent_id = %(agent_id)s
  AND NOT is_deleted AND (expires_at IS NULL OR expires_at > now())
  AND (%(user_id)s::text IS NULL OR user_id = %(user_id)s)
  AND (%(session_id)s::text IS NULL OR session_id = %(session_id)s)
  AND created_at >= %(since)s AND created_at < %(until)s
  AND (created_at, id) < (%(before)s, %(before_id)s)
ORDER BY created_at DESC, id DESC LIMIT %(limit)s

-- name: list_semantic
-- GET memories; current facts. Served by idx_semantic_revision.
SELECT * FROM semantic_memory
WHERE tenant_id = %(tenant_id)s AND agent_id = %(agent_id)s
  AND NOT is_deleted AND valid_until IS NULL AND (expires_at IS NULL OR expires_at > now())
  AND (%(user_id)s::text IS NULL OR user_id = %(user_id)s) AND %(session_id)s::text IS NULL
  AND valid_from >= %(since)s AND valid_from < %(until)s
  AND (valid_from, id) < (%(before)s, %(before_id)s)
ORDER BY valid_from DESC, id DESC LIMIT %(limit)s

-- name: list_procedural
-- GET memories; served by idx_procedural_agent_rank.
SELECT * FROM procedural_memory
WHERE tenant_id = %(tenant_id)s AND agent_id = %(agent_id)s
  AND (%(user_id)s::text IS NULL OR user_id = %(user_id)s) AND %(session_id)s::text IS NULL
  AND updated_at >= %(since)s AND updated_at < %(until)s
  AND (updated_at, id) < (%(before)s, %(before_id)s)
ORDER BY updated_at DESC, id DESC LIMIT %(limit)s

-- name: update_episodic
UPDATE episodic_memory SET
    content = coalesce(%(content)s, content),
    content_hash = coalesce(%(content_hash)s, content_hash),
    embedding = coalesce(%(vector)s::vector, embedding),
    embedding_model = CASE WHEN %(vector)s::vector IS NULL THEN embedding_model ELSE %(model)s END,
    importance = coalesce(%(importance)s, importance),
    importance_given = importance_given OR %(importance)s IS NOT NULL,
    outcome = coalesce(%(outcome)s, outcome),
    retention_tier = coalesce(%(retention_tier)s, retention_tier),
    expires_at = CASE WHEN %(retention_tier)s::text IS NULL THEN expires_at ELSE %(expires_at)s::timestamptz END,
    metadata = coalesce(%(metadata)s, metadata),
    extraction = CASE WHEN %(content)s::text IS NULL OR extraction = 'off' THEN extraction ELSE 'pending' END,
    revision = %(revision)s
WHERE id = %(id)s AND created_at = %(created_at)s AND tenant_id = %(tenant_id)s
RETURNING *

-- name: update_semantic
UPDATE semantic_memory SET
    fact = coalesce(%(content)s, fact),
    content_hash = coalesce(%(content_hash)s, content_hash),
    embedding = coalesce(%(vector)s::vector, embedding),
    embedding_model = CASE WHEN %(vector)s::vector IS NULL THEN embedding_model ELSE %(model)s END,
    confidence = coalesce(%(importance)s, confidence),
    metadata = coalesce(%(metadata)s, metadata),
    revision = %(revision)s,
    updated_at = now()
WHERE id = %(id)s AND tenant_id = %(tenant_id)s
RETURNING *

-- name: update_procedural
UPDATE procedural_memory SET
    metadata = coalesce(%(metadata)s, metadata), revision = %(revision)s, updated_at = now()
WHERE id = %(id)s AND tenant_id = %(tenant_id)s
RETURNING *

-- name: add_history
INSERT INTO memory_history (tenant_id, agent_id, memory_id, revision, event, before, after)
VALUES (%(tenant_id)s, %(agent_id)s, %(memory_id)s, %(revision)s, %(event)s, %(before)s, %(after)s)

-- name: history
-- Served by the primary key.
SELECT revision, event, before, after, at FROM memory_history
WHERE memory_id = %(id)s AND tenant_id = %(tenant_id)s AND agent_id = %(agent_id)s
ORDER BY revision

-- name: derived_only_from
-- Facts and skills all of whose sources are among these episodes. Served by idx_memory_sources_source.
SELECT DISTINCT s.memory_id, s.tier FROM memory_sources s
WHERE s.source_id = ANY(%(ids)s) AND s.tenant_id = %(tenant_id)s
  AND NOT EXISTS (SELECT 1 FROM memory_sources o
                  WHERE o.memory_id = s.memory_id AND o.source_id <> ALL(%(ids)s))

-- name: user_memories
-- DELETE memories of a user: everything of theirs at this agent.
SELECT id, 'episodic' AS tier FROM episodic_memory
WHERE tenant_id = %(tenant_id)s AND agent_id = %(agent_id)s AND user_id = %(user_id)s
UNION ALL
SELECT id, 'semantic' FROM semantic_memory
WHERE tenant_id = %(tenant_id)s AND agent_id = %(agent_id)s AND user_id = %(user_id)s
UNION ALL
SELECT id, 'semantic' FROM quarantined_facts
WHERE tenant_id = %(tenant_id)s AND agent_id = %(agent_id)s AND user_id = %(user_id)s
UNION ALL
SELECT id, 'procedural' FROM procedural_memory
WHERE tenant_id = %(tenant_id)s AND agent_id = %(agent_id)s AND user_id = %(user_id)s

-- name: note_user_deletion
-- DELETE memories of a user: from now on, writes accepted earlier are not stored. Served by the primary key.
INSERT INTO user_deletions (tenant_id, agent_id, user_id, at)
VALUES (%(tenant_id)s, %(agent_id)s, %(user_id)s, clock_timestamp())
ON CONFLICT (tenant_id, agent_id, user_id) DO UPDATE SET at = EXCLUDED.at

-- name: delete_user_dead_letters
-- DELETE memories of a user: the ledger says rejected, the content goes. Few rows of idx_dead_letters_tenant.
WITH gone AS (
    DELETE FROM dead_letters
    WHERE tenant_id = %(tenant_id)s AND agent_id = %(agent_id)s AND user_id = %(user_id)s
    RETURNING id)
UPDATE write_ledger SET state = 'rejected', reason = 'the user was deleted', settled_at = now()
WHERE operation_id IN (SELECT id FROM gone) AND tenant_id = %(tenant_id)s

-- name: delete_sessions
-- DELETE memories of a user; served by the primary key.
DELETE FROM sessions WHERE tenant_id = %(tenant_id)s AND agent_id = %(agent_id)s AND user_id = %(user_id)s

-- name: delete_episodic
DELETE FROM episodic_memory WHERE id = ANY(%(ids)s) AND tenant_id = %(tenant_id)s
RETURNING user_id, session_id

-- name: delete_semantic
DELETE FROM semantic_memory WHERE id = ANY(%(ids)s) AND tenant_id = %(tenant_id)s
RETURNING namespace_id

-- name: delete_quarantined
DELETE FROM quarantined_facts WHERE id = ANY(%(ids)s) AND tenant_id = %(tenant_id)s

-- name: delete_procedural
DELETE FROM procedural_memory WHERE id = ANY(%(ids)s) AND tenant_id = %(tenant_id)s

-- name: delete_sources
DELETE FROM memory_sources
WHERE tenant_id = %(tenant_id)s AND (source_id = ANY(%(ids)s) OR memory_id = ANY(%(ids)s))

-- name: repoint_sources
-- A fact that lost its first source takes another one, or none.
UPDATE semantic_memory m SET source_episode_id = (
    SELECT s.source_id FROM memory_sources s WHERE s.memory_id = m.id ORDER BY s.source_id LIMIT 1),
    revision = %(revision)s
WHERE m.source_episode_id = ANY(%(ids)s) AND m.tenant_id = %(tenant_id)s AND m.agent_id = %(agent_id)s

-- name: delete_history
DELETE FROM memory_history WHERE memory_id = ANY(%(ids)s) AND tenant_id = %(tenant_id)s

-- name: delete_dead_letters
DELETE FROM dead_letters WHERE id = ANY(%(ids)s) AND tenant_id = %(tenant_id)s

-- name: bury
INSERT INTO tombstones (tenant_id, agent_id, memory_id, revision)
SELECT %(tenant_id)s, %(agent_id)s, id, %(revision)s FROM unnest(%(ids)s::uuid[]) AS id
ON CONFLICT DO NOTHING

-- name: uncount_facts
UPDATE namespaces SET live_count = greatest(0, live_count - %(removed)s) WHERE namespace_id = %(namespace_id)s

-- name: uncount_episodes
UPDATE sessions SET episodes = greatest(0, episodes - %(removed)s)
WHERE tenant_id = %(tenant_id)s AND agent_id = %(agent_id)s AND user_id = %(user_id)s AND session_id = %(session_id)s

-- name: audit
INSERT INTO audit_log (tenant_id, agent_id, action, subject, details)
VALUES (%(tenant_id)s, %(agent_id)s, %(action)s, %(subject)s, %(details)s)
