-- name: key_query_1_semantic_recall
-- The specification's Key Query 1, over the graph; served by idx_semantic_embedding of the placements named.
SELECT id, fact, confidence, 1 - (embedding <=> %(vector)s) AS similarity
FROM semantic_memory
WHERE tenant_id = %(tenant_id)s
  AND placement = ANY(%(placements)s)
  AND namespace_id = ANY(%(namespace_ids)s)
  AND embedding_model = %(model)s
  AND valid_until IS NULL
  AND is_deleted = false
ORDER BY embedding <=> %(vector)s
LIMIT %(limit)s

-- name: key_query_2_recent_episodes
-- The specification's Key Query 2: what just happened in this session; served by idx_episodic_agent_recent.
SELECT id, event_type, content, outcome, importance, created_at
FROM episodic_memory
WHERE tenant_id = %(tenant_id)s
  AND agent_id = %(agent_id)s
  AND session_id = %(session_id)s
  AND is_deleted = false
  AND created_at >= now() - INTERVAL '24 hours'
ORDER BY created_at DESC
LIMIT 15

-- name: key_query_3_supersede
-- The specification's Key Query 3: retire a contradicted fact; served by idx_semantic_subject_pred.
UPDATE semantic_memory
SET valid_until = now(), updated_at = now(), revision = %(revision)s
WHERE tenant_id = %(tenant_id)s
  AND placement = %(placement)s
  AND namespace_id = %(namespace_id)s
  AND subject = %(subject)s
  AND predicate = %(predicate)s
  AND valid_until IS NULL
  AND is_deleted = false
  AND confidence <= %(confidence)s
RETURNING id

-- name: scope
-- Every search: settings, the namespaces it may read, and the user's episodes. Primary keys and unique indexes.
SELECT
    (SELECT coalesce(sum(episodes), 0) FROM sessions
     WHERE tenant_id = %(tenant_id)s AND agent_id = %(agent_id)s AND user_id = %(user_id)s)::bigint AS episodes,
    (SELECT coalesce(json_agg(json_build_array(namespace_id, placement, live_count)), '[]') FROM namespaces
     WHERE tenant_id = %(tenant_id)s
       AND ((agent_id = %(agent_id)s AND name = ANY(%(names)s)) OR (agent_id = '' AND name = 'world'))) AS namespaces

-- name: episodes
-- Every search. {order} makes it an exact scan of idx_episodic_scope, or a walk of idx_episodic_embedding.
SELECT id, agent_id, user_id, session_id, event_type, role, speaker, content, content_hash, outcome, importance,
       access_count, last_accessed_at, created_at, recorded_at, expires_at, revision, metadata, retention_tier,
       extraction, skill, embedding
FROM episodic_memory
WHERE tenant_id = %(tenant_id)s AND agent_id = %(agent_id)s AND user_id = %(user_id)s
  AND embedding_model = %(model)s
  AND is_deleted = false
  AND (expires_at IS NULL OR expires_at > now())
  AND created_at >= %(since)s AND created_at < %(until)s
ORDER BY {order}
LIMIT %(limit)s

-- name: facts
-- Every search. {order} makes it an exact scan of idx_semantic_namespace, or a walk of idx_semantic_embedding.
SELECT id, agent_id, user_id, namespace, fact, subject, predicate, object, confidence, source_episode_id,
       content_hash, supersedes, access_count, last_accessed_at, valid_from, valid_until, created_at, expires_at,
       revision, metadata, embedding
FROM semantic_memory
WHERE tenant_id = %(tenant_id)s
  AND placement = ANY(%(placements)s)
  AND namespace_id = ANY(%(namespace_ids)s)
  AND embedding_model = %(model)s
  AND valid_until IS NULL
  AND is_deleted = false
  AND (expires_at IS NULL OR expires_at > now())
  AND valid_from >= %(since)s AND valid_from < %(until)s
ORDER BY {order}
LIMIT %(limit)s

-- name: skills
-- Every search: an agent has few skills, so the scan is exact; served by uq_procedural_skill.
SELECT id, agent_id, user_id, namespace, skill_name, trigger_pattern, policy, tool_sequence, success_count,
       failure_count, success_rate, avg_reward, version, access_count, last_accessed_at, created_at, updated_at,
       revision, metadata, embedding
FROM procedural_memory
WHERE tenant_id = %(tenant_id)s AND agent_id = %(agent_id)s AND namespace = ANY(%(names)s)
  AND embedding_model = %(model)s
  AND updated_at >= %(since)s AND updated_at < %(until)s
ORDER BY (embedding <=> %(vector)s) + 0
LIMIT %(limit)s

