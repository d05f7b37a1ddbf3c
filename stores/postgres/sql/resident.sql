-- name: snapshot
-- Before a load or a delta: all that follows sees the same moment.
SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY

-- name: changed_episodes
-- A resident index: a user's episodes since a revision; idx_episodic_scope for a load, idx_episodic_revision for a
-- delta. A vector of another model is no vector.
SELECT id, agent_id, user_id, session_id, event_type, role, speaker, content, content_hash, outcome, importance,
       access_count, last_accessed_at, retention_tier, extraction, skill, trust, metadata, revision, created_at,
       recorded_at, expires_at, NOT is_deleted AS live,
       CASE WHEN embedding_model = %(model)s THEN halfvec_send(embedding::halfvec) END AS half
FROM episodic_memory
WHERE tenant_id = %(tenant_id)s
  AND agent_id = %(agent_id)s
  AND user_id = %(user_id)s
  AND revision > %(revision)s

-- name: changed_facts
-- A resident index: the facts that the user may read, the world's aside; idx_semantic_revision.
SELECT id, agent_id, user_id, namespace, fact, subject, predicate, object, confidence, source_episode_id, content_hash,
       supersedes, access_count, last_accessed_at, valid_from, valid_until, metadata, revision, created_at, expires_at,
       valid_until IS NULL AND NOT is_deleted AS live,
       CASE WHEN embedding_model = %(model)s THEN halfvec_send(embedding::halfvec) END AS half
FROM semantic_memory
WHERE tenant_id = %(tenant_id)s
  AND agent_id = %(agent_id)s
  AND namespace IN ('agent', %(user_namespace)s)
  AND revision > %(revision)s

-- name: changed_skills
-- A resident index: the skills that the user may read; idx_procedural_revision.
SELECT id, agent_id, user_id, namespace, skill_name, trigger_pattern, policy, tool_sequence, success_count,
       failure_count, success_rate, avg_reward, access_count, last_accessed_at, version, metadata, revision, created_at,
       updated_at, true AS live,
       CASE WHEN embedding_model = %(model)s THEN halfvec_send(embedding::halfvec) END AS half,
       (SELECT source_id FROM memory_sources WHERE memory_id = p.id ORDER BY source_id DESC LIMIT 1) AS source_id
FROM procedural_memory p
WHERE tenant_id = %(tenant_id)s
  AND agent_id = %(agent_id)s
  AND namespace IN ('agent', %(user_namespace)s)
  AND revision > %(revision)s

-- name: gone
-- A resident index: what was deleted since a revision; idx_tombstones_revision.
SELECT memory_id FROM tombstones
WHERE tenant_id = %(tenant_id)s AND agent_id = %(agent_id)s AND revision > %(revision)s

-- name: size
-- Before a load: how many memories the user has, about; the sessions' counters (primary key) never go down.
SELECT (SELECT coalesce(sum(episodes), 0) FROM sessions
        WHERE tenant_id = %(tenant_id)s AND agent_id = %(agent_id)s AND user_id = %(user_id)s)
     + (SELECT coalesce(sum(live_count), 0) FROM namespaces
        WHERE tenant_id = %(tenant_id)s AND agent_id = %(agent_id)s AND name IN ('agent', %(user_namespace)s))
       AS memories

-- name: agent
-- Every search: the agent as it is, and how many facts the tenant's world has; served by unique keys.
SELECT a.tenant_id, a.agent_id, a.team, a.revision, a.scoring, a.budget_ratios, a.retention,
       coalesce(w.live_count, 0) AS world_facts
FROM (VALUES (1)) AS always
LEFT JOIN agents a ON a.tenant_id = %(tenant_id)s AND a.agent_id = %(agent_id)s
LEFT JOIN namespaces w ON w.tenant_id = %(tenant_id)s AND w.agent_id = '' AND w.name = 'world'

-- name: hydrate_episodes
-- Every search: its winners, if they still live; the primary keys of the winners' months. Not prepared: the plan is to
-- know the moments, and leave out the other months before it opens them.
SELECT id, agent_id, user_id, session_id, event_type, role, speaker, content, outcome, importance, access_count,
       last_accessed_at, retention_tier, extraction, skill, trust, metadata, revision, created_at, recorded_at,
       expires_at
FROM episodic_memory
WHERE id = ANY(%(ids)s)
  AND created_at = ANY(%(moments)s)
  AND tenant_id = %(tenant_id)s
  AND agent_id = %(agent_id)s
  AND is_deleted = false
  AND (expires_at IS NULL OR expires_at > now())

-- name: hydrate_facts
-- Every search: its winners, if they still hold; the primary key.
SELECT id, agent_id, user_id, namespace, fact, subject, predicate, object, confidence, source_episode_id, supersedes,
       access_count, last_accessed_at, valid_from, valid_until, metadata, revision, created_at, expires_at
FROM semantic_memory
WHERE id = ANY(%(ids)s)
  AND tenant_id = %(tenant_id)s
  AND agent_id = %(agent_id)s
  AND valid_until IS NULL
  AND is_deleted = false
  AND (expires_at IS NULL OR expires_at > now())

-- name: hydrate_skills
-- Every search: its winners; the primary key.
SELECT id, agent_id, user_id, namespace, skill_name, trigger_pattern, policy, tool_sequence, success_count,
       failure_count, success_rate, avg_reward, access_count, last_accessed_at, version, metadata, revision, created_at,
       updated_at
FROM procedural_memory
WHERE id = ANY(%(ids)s) AND tenant_id = %(tenant_id)s AND agent_id = %(agent_id)s
