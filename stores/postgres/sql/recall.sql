-- name: key_query_1_semantic_recall
-- Key Query 1. Every search, for namespaces too large to scan: idx_semantic_embedding of the placements named. The
-- settings of "planner" let the walk go on until enough rows of the namespaces are found.
SELECT id, agent_id, user_id, namespace, fact, subject, predicate, object, confidence, source_episode_id, embedding,
       content_hash, supersedes, access_count, last_accessed_at, valid_from, valid_until, metadata, revision,
       created_at, expires_at, 1 - (embedding <=> %(vector)s) AS similarity
FROM semantic_memory
WHERE tenant_id = %(tenant_id)s
  AND namespace_id = ANY(%(namespaces)s::bigint[])
  AND placement = ANY(%(placements)s::smallint[])
  AND embedding_model = %(model)s
  AND valid_until IS NULL
  AND is_deleted = false
  AND (expires_at IS NULL OR expires_at > now())
  AND (%(since)s::timestamptz IS NULL OR valid_from >= %(since)s)
  AND (%(until)s::timestamptz IS NULL OR valid_from < %(until)s)
ORDER BY embedding <=> %(vector)s
LIMIT %(limit)s

-- name: facts_exact
-- Every search, for small namespaces: idx_semantic_namespace; "+ 0" keeps the graph out, so the answer is exact.
SELECT id, agent_id, user_id, namespace, fact, subject, predicate, object, confidence, source_episode_id, embedding,
       content_hash, supersedes, access_count, last_accessed_at, valid_from, valid_until, metadata, revision,
       created_at, expires_at, 1 - (embedding <=> %(vector)s) AS similarity
FROM semantic_memory
WHERE tenant_id = %(tenant_id)s
  AND namespace_id = ANY(%(namespaces)s::bigint[])
  AND placement = ANY(%(placements)s::smallint[])
  AND embedding_model = %(model)s
  AND valid_until IS NULL
  AND is_deleted = false
  AND (expires_at IS NULL OR expires_at > now())
  AND (%(since)s::timestamptz IS NULL OR valid_from >= %(since)s)
  AND (%(until)s::timestamptz IS NULL OR valid_from < %(until)s)
ORDER BY (embedding <=> %(vector)s) + 0
LIMIT %(limit)s

-- name: key_query_2_recent_episodes
-- Key Query 2. At the start of a turn: idx_episodic_agent_recent of the months that the last 24 hours touch.
SELECT id, agent_id, user_id, session_id, event_type, role, speaker, content, outcome, importance, access_count,
       last_accessed_at, retention_tier, extraction, skill, trust, metadata, revision, created_at, recorded_at,
       expires_at
FROM episodic_memory
WHERE tenant_id = %(tenant_id)s
  AND agent_id = %(agent_id)s
  AND session_id = %(session_id)s
  AND user_id = %(user_id)s
  AND is_deleted = false
  AND (expires_at IS NULL OR expires_at > now())
  AND created_at >= now() - INTERVAL '24 hours'
ORDER BY created_at DESC
LIMIT %(limit)s

-- name: key_query_3_supersede
-- Key Query 3. Consolidation, before it inserts the newer fact: idx_semantic_subject_pred.
UPDATE semantic_memory
SET valid_until = now(),
    updated_at = now(),
    revision = %(revision)s
WHERE tenant_id = %(tenant_id)s
  AND namespace_id = %(namespace_id)s
  AND placement = %(placement)s
  AND subject = %(subject)s
  AND predicate = %(predicate)s
  AND valid_until IS NULL
  AND is_deleted = false
  AND confidence <= %(confidence)s
RETURNING id

-- name: episodes_exact
-- Every search, for a user with few episodes: idx_episodic_scope of each month; "+ 0" keeps the graph out.
SELECT id, agent_id, user_id, session_id, event_type, role, speaker, content, content_hash, outcome, importance,
       embedding, access_count, last_accessed_at, retention_tier, extraction, skill, trust, metadata, revision,
       created_at, recorded_at, expires_at, 1 - (embedding <=> %(vector)s) AS similarity
FROM episodic_memory
WHERE tenant_id = %(tenant_id)s
  AND agent_id = %(agent_id)s
  AND user_id = %(user_id)s
  AND embedding_model = %(model)s
  AND is_deleted = false
  AND (expires_at IS NULL OR expires_at > now())
  AND (%(since)s::timestamptz IS NULL OR created_at >= %(since)s)
  AND (%(until)s::timestamptz IS NULL OR created_at < %(until)s)
  AND (%(session_id)s::text IS NULL OR session_id = %(session_id)s)
  AND (%(event_types)s::text[] IS NULL OR event_type = ANY(%(event_types)s))
ORDER BY (embedding <=> %(vector)s) + 0
LIMIT %(limit)s

-- name: episodes_ann
-- Every search, for a user with many episodes: idx_episodic_embedding of each month, merged.
SELECT id, agent_id, user_id, session_id, event_type, role, speaker, content, content_hash, outcome, importance,
       embedding, access_count, last_accessed_at, retention_tier, extraction, skill, trust, metadata, revision,
       created_at, recorded_at, expires_at, 1 - (embedding <=> %(vector)s) AS similarity
FROM episodic_memory
WHERE tenant_id = %(tenant_id)s
  AND agent_id = %(agent_id)s
  AND user_id = %(user_id)s
  AND embedding_model = %(model)s
  AND is_deleted = false
  AND (expires_at IS NULL OR expires_at > now())
  AND (%(since)s::timestamptz IS NULL OR created_at >= %(since)s)
  AND (%(until)s::timestamptz IS NULL OR created_at < %(until)s)
  AND (%(session_id)s::text IS NULL OR session_id = %(session_id)s)
  AND (%(event_types)s::text[] IS NULL OR event_type = ANY(%(event_types)s))
ORDER BY embedding <=> %(vector)s
LIMIT %(limit)s

-- name: skills_by_trigger
-- Every search; an agent's skills are few, so always exact: idx_procedural_agent_rank or uq_procedural_skill.
SELECT id, agent_id, user_id, namespace, skill_name, trigger_pattern, policy, tool_sequence, success_count,
       failure_count, success_rate, avg_reward, embedding, access_count, last_accessed_at, version, metadata, revision,
       created_at, updated_at, 1 - (embedding <=> %(vector)s) AS similarity
FROM procedural_memory
WHERE tenant_id = %(tenant_id)s
  AND agent_id = %(agent_id)s
  AND namespace IN ('agent', %(user_namespace)s)
  AND embedding_model = %(model)s
  AND (%(since)s::timestamptz IS NULL OR updated_at >= %(since)s)
  AND (%(until)s::timestamptz IS NULL OR updated_at < %(until)s)
ORDER BY (embedding <=> %(vector)s) + 0
LIMIT %(limit)s

-- name: readable_namespaces
-- Every search: where the facts are that a user of an agent may read; served by the unique key.
SELECT namespace_id, placement, live_count
FROM namespaces
WHERE tenant_id = %(tenant_id)s
  AND ((agent_id = %(agent_id)s AND NOT %(world_only)s AND name IN ('agent', %(user_namespace)s)) OR (agent_id = '' AND name = 'world'))

-- name: count_episodes
-- Every search: how many episodes it goes through, as far as it matters (at most bound + 1).
-- The sessions' counters (primary key) settle it for almost everyone. They never go down, so above the bound the
-- live episodes of the period are counted, in idx_episodic_scope.
SELECT CASE WHEN written.episodes <= %(bound)s THEN written.episodes ELSE (
    SELECT count(*) FROM (
        SELECT 1 FROM episodic_memory
        WHERE tenant_id = %(tenant_id)s
          AND agent_id = %(agent_id)s
          AND user_id = %(user_id)s
          AND is_deleted = false
          AND (%(since)s::timestamptz IS NULL OR created_at >= %(since)s)
          AND (%(until)s::timestamptz IS NULL OR created_at < %(until)s)
        LIMIT %(bound)s + 1) AS found) END AS episodes
FROM (
    SELECT coalesce(sum(episodes), 0)::bigint AS episodes FROM sessions
    WHERE tenant_id = %(tenant_id)s AND agent_id = %(agent_id)s AND user_id = %(user_id)s) AS written

-- name: planner
-- Every search, once per transaction. Compiling a plan or starting workers costs more than these queries do, and
-- with the default memory a walk of the graph stops long before max_scan_tuples.
SELECT set_config('jit', 'off', true),
       set_config('max_parallel_workers_per_gather', '0', true),
       set_config('hnsw.iterative_scan', %(iterative_scan)s, true),
       set_config('hnsw.ef_search', %(ef_search)s, true),
       set_config('hnsw.max_scan_tuples', %(max_scan_tuples)s, true),
       set_config('hnsw.scan_mem_multiplier', %(scan_mem_multiplier)s, true)

-- name: tenant_episodes
-- A search over all agents of a tenant: idx_episodic_embedding of each month, merged.
SELECT id, agent_id, user_id, session_id, event_type, role, speaker, content, content_hash, outcome, importance,
       embedding, access_count, last_accessed_at, retention_tier, extraction, skill, trust, metadata, revision,
       created_at, recorded_at, expires_at, 1 - (embedding <=> %(vector)s) AS similarity
FROM episodic_memory
WHERE tenant_id = %(tenant_id)s
  AND (%(agents)s::text[] IS NULL OR agent_id = ANY(%(agents)s))
  AND embedding_model = %(model)s
  AND is_deleted = false
  AND (expires_at IS NULL OR expires_at > now())
  AND (%(since)s::timestamptz IS NULL OR created_at >= %(since)s)
  AND (%(until)s::timestamptz IS NULL OR created_at < %(until)s)
ORDER BY embedding <=> %(vector)s
LIMIT %(limit)s

-- name: tenant_facts
-- A search over all agents of a tenant: idx_semantic_embedding of each placement, merged.
SELECT id, agent_id, user_id, namespace, fact, subject, predicate, object, confidence, source_episode_id, embedding,
       content_hash, supersedes, access_count, last_accessed_at, valid_from, valid_until, metadata, revision,
       created_at, expires_at, 1 - (embedding <=> %(vector)s) AS similarity
FROM semantic_memory
WHERE tenant_id = %(tenant_id)s
  AND (%(agents)s::text[] IS NULL OR agent_id = ANY(%(agents)s))
  AND embedding_model = %(model)s
  AND valid_until IS NULL
  AND is_deleted = false
  AND (expires_at IS NULL OR expires_at > now())
  AND (%(since)s::timestamptz IS NULL OR valid_from >= %(since)s)
  AND (%(until)s::timestamptz IS NULL OR valid_from < %(until)s)
ORDER BY embedding <=> %(vector)s
LIMIT %(limit)s

-- name: tenant_skills
-- A search over all agents of a tenant: idx_procedural_embedding.
SELECT id, agent_id, user_id, namespace, skill_name, trigger_pattern, policy, tool_sequence, success_count,
       failure_count, success_rate, avg_reward, embedding, access_count, last_accessed_at, version, metadata, revision,
       created_at, updated_at, 1 - (embedding <=> %(vector)s) AS similarity
FROM procedural_memory
WHERE tenant_id = %(tenant_id)s
  AND (%(agents)s::text[] IS NULL OR agent_id = ANY(%(agents)s))
  AND embedding_model = %(model)s
  AND (%(since)s::timestamptz IS NULL OR updated_at >= %(since)s)
  AND (%(until)s::timestamptz IS NULL OR updated_at < %(until)s)
ORDER BY embedding <=> %(vector)s
LIMIT %(limit)s
