-- name: hold
-- The shard: a fact of an untrusted channel; uq_quarantined decides. One that is held already stays as it was first
-- said: saying it again, through whichever channel, makes it no more believable.
INSERT INTO quarantined_facts (
    tenant_id, agent_id, user_id, namespace, namespace_id, placement, fact, subject, predicate, object, confidence,
    content_hash, valid_from, metadata, revision)
VALUES (
    %(tenant_id)s, %(agent_id)s, %(user_id)s, %(namespace)s, %(namespace_id)s, %(placement)s, %(fact)s, %(subject)s,
    %(predicate)s, %(object)s, %(confidence)s, %(content_hash)s, %(valid_from)s, %(metadata)s, %(revision)s)
ON CONFLICT ON CONSTRAINT uq_quarantined DO UPDATE SET revision = EXCLUDED.revision
RETURNING id

-- name: get_quarantined
-- GET memory, and before a release; served by the primary key.
SELECT * FROM quarantined_facts
WHERE id = %(id)s AND tenant_id = %(tenant_id)s AND agent_id = %(agent_id)s

-- name: list_quarantined
-- GET quarantine; served by idx_quarantined_listed without a sort.
SELECT q.*, (SELECT array_agg(s.source_id ORDER BY s.source_id) FROM memory_sources s
             WHERE s.memory_id = q.id AND s.tenant_id = q.tenant_id) AS sources
FROM quarantined_facts q
WHERE q.tenant_id = %(tenant_id)s AND q.agent_id = %(agent_id)s
  AND (%(user_id)s::text IS NULL OR q.user_id = %(user_id)s)
  AND (q.created_at, q.id) < (%(before)s, %(before_id)s)
ORDER BY q.created_at DESC, q.id DESC LIMIT %(limit)s

-- name: release
-- POST release: the fact takes its place among the live ones, as one that is said now; uq_semantic_dedup decides
-- whether it is new or was there.
WITH released AS (
    DELETE FROM quarantined_facts
    WHERE id = %(id)s AND tenant_id = %(tenant_id)s AND agent_id = %(agent_id)s
    RETURNING *)
INSERT INTO semantic_memory (
    id, tenant_id, agent_id, user_id, namespace, namespace_id, placement, fact, subject, predicate, object, confidence,
    source_episode_id, embedding, embedding_model, content_hash, valid_from, metadata, revision)
SELECT id, tenant_id, agent_id, user_id, namespace, namespace_id, placement, fact, subject, predicate, object,
       confidence,
       (SELECT source_id FROM memory_sources s WHERE s.memory_id = released.id ORDER BY source_id LIMIT 1),
       %(embedding)s, %(embedding_model)s, content_hash, valid_from, metadata, %(revision)s
FROM released
ON CONFLICT ON CONSTRAINT uq_semantic_dedup DO UPDATE
SET confidence = GREATEST(semantic_memory.confidence, EXCLUDED.confidence),
    valid_until = NULL,
    is_deleted = false,
    revision = EXCLUDED.revision,
    updated_at = now()
RETURNING semantic_memory.*, old.id IS NULL AS inserted

-- name: move_sources
-- POST release of a fact that was there: its sources are the other's, too. Served by the primary key.
WITH moved AS (
    DELETE FROM memory_sources WHERE memory_id = %(id)s AND tenant_id = %(tenant_id)s RETURNING *)
INSERT INTO memory_sources (tenant_id, agent_id, memory_id, tier, source_id)
SELECT tenant_id, agent_id, %(into)s, tier, source_id FROM moved
ON CONFLICT DO NOTHING
