-- name: ensure_partition
-- The shard, before a batch that touches a month for the first time; a no-op when the month exists.
SELECT ensure_episodic_partition(%(moment)s) AS name

-- name: buried
-- The shard: which of these ids were deleted before they were stored. Served by the primary key.
SELECT memory_id FROM tombstones WHERE memory_id = ANY(%(ids)s) AND tenant_id = %(tenant_id)s

-- name: deleted_users
-- The shard: when everything of these users was deleted, if ever. Served by the primary key.
SELECT d.agent_id, d.user_id, d.at
FROM unnest(%(agents)s::text[], %(users)s::text[]) AS w (agent_id, user_id)
JOIN user_deletions d ON d.agent_id = w.agent_id AND d.user_id = w.user_id AND d.tenant_id = %(tenant_id)s

-- name: settled
-- The shard: which of these ids are settled already (a redelivered batch). Served by the primary key.
SELECT operation_id, state FROM write_ledger
WHERE operation_id = ANY(%(ids)s) AND tenant_id = %(tenant_id)s AND state <> 'dead_lettered'

-- name: insert_episode
-- The shard: one interaction; a redelivered one changes nothing.
INSERT INTO episodic_memory (
    id, tenant_id, agent_id, user_id, session_id, event_type, role, speaker, content, content_hash, outcome,
    importance, importance_given, embedding, embedding_model, retention_tier, extraction, skill, trust, metadata,
    revision, created_at, recorded_at, expires_at)
VALUES (
    %(id)s, %(tenant_id)s, %(agent_id)s, %(user_id)s, %(session_id)s, %(event_type)s, %(role)s, %(speaker)s,
    %(content)s, %(content_hash)s, %(outcome)s, %(importance)s, %(importance_given)s, %(embedding)s,
    %(embedding_model)s, %(retention_tier)s, %(extraction)s, %(skill)s, %(trust)s, %(metadata)s, %(revision)s,
    %(created_at)s, %(recorded_at)s, %(expires_at)s)
ON CONFLICT (id, created_at) DO NOTHING

-- name: touch_session
-- The shard: a session's counters; served by the primary key.
INSERT INTO sessions (tenant_id, agent_id, user_id, session_id, episodes)
VALUES (%(tenant_id)s, %(agent_id)s, %(user_id)s, %(session_id)s, %(episodes)s)
ON CONFLICT (tenant_id, agent_id, user_id, session_id) DO UPDATE
SET episodes = sessions.episodes + EXCLUDED.episodes, last_seen_at = now(), ended_at = NULL

-- name: ensure_namespace
-- The shard: a namespace's id and placement; the pool of a new one follows from its identity.
INSERT INTO namespaces (tenant_id, agent_id, name, user_id, placement)
VALUES (%(tenant_id)s, %(agent_id)s, %(name)s, %(user_id)s, %(placement)s)
ON CONFLICT (tenant_id, agent_id, name) DO UPDATE SET name = EXCLUDED.name
RETURNING namespace_id, placement

-- name: upsert_fact
-- The shard: a fact said again raises its confidence and becomes current again; uq_semantic_dedup decides.
INSERT INTO semantic_memory (
    tenant_id, agent_id, user_id, namespace, namespace_id, placement, fact, subject, predicate, object, confidence,
    source_episode_id, embedding, embedding_model, content_hash, valid_from, metadata, revision)
VALUES (
    %(tenant_id)s, %(agent_id)s, %(user_id)s, %(namespace)s, %(namespace_id)s, %(placement)s, %(fact)s, %(subject)s,
    %(predicate)s, %(object)s, %(confidence)s, %(source_id)s, %(embedding)s, %(embedding_model)s, %(content_hash)s,
    %(valid_from)s, %(metadata)s, %(revision)s)
ON CONFLICT ON CONSTRAINT uq_semantic_dedup DO UPDATE
SET confidence = GREATEST(semantic_memory.confidence, EXCLUDED.confidence),
    valid_until = NULL,
    is_deleted = false,
    revision = EXCLUDED.revision,
    updated_at = now()
RETURNING id, old.id IS NULL OR old.is_deleted OR old.valid_until IS NOT NULL AS added

-- name: count_fact
-- The shard: live facts of a namespace, which decide between an exact scan and the graph.
UPDATE namespaces SET live_count = live_count + %(added)s WHERE namespace_id = %(namespace_id)s

-- name: add_source
-- The shard: which episode a fact or skill came from.
INSERT INTO memory_sources (tenant_id, agent_id, memory_id, tier, source_id)
VALUES (%(tenant_id)s, %(agent_id)s, %(memory_id)s, %(tier)s, %(source_id)s)
ON CONFLICT DO NOTHING

-- name: pending_episode
-- The shard, for an entry that asks for extraction; served by the primary key of each month.
SELECT id, tenant_id, agent_id, user_id, session_id, event_type, role, speaker, content, outcome,
       CASE WHEN importance_given THEN importance END AS importance, trust, metadata, created_at, recorded_at
FROM episodic_memory
WHERE id = %(id)s AND tenant_id = %(tenant_id)s AND agent_id = %(agent_id)s
  AND extraction = 'pending' AND NOT is_deleted

-- name: settle_extraction
-- The shard, in the transaction that stores what was extracted; no row where the episode was deleted or changed, or
-- was settled before. An importance that the caller gave stands.
UPDATE episodic_memory
SET extraction = %(state)s,
    importance = CASE WHEN importance_given THEN importance ELSE %(importance)s END,
    revision = %(revision)s
WHERE id = %(id)s AND created_at = %(created_at)s AND tenant_id = %(tenant_id)s
  AND content_hash = %(content_hash)s AND extraction = 'pending' AND NOT is_deleted
RETURNING id
