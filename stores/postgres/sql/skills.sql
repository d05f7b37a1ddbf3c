-- name: upsert_skill
-- The shard and PUT skill: one atomic statement; uq_procedural_skill decides. Counters add up, the reward is averaged.
INSERT INTO procedural_memory AS p (
    tenant_id, agent_id, user_id, namespace, skill_name, trigger_pattern, policy, tool_sequence, success_count,
    failure_count, reward_count, avg_reward, embedding, embedding_model, metadata, revision)
VALUES (
    %(tenant_id)s, %(agent_id)s, %(user_id)s, %(namespace)s, %(skill_name)s, %(trigger_pattern)s, %(policy)s,
    %(tool_sequence)s, %(successes)s, %(failures)s, %(rewards)s, %(reward)s, %(embedding)s, %(embedding_model)s,
    %(metadata)s, %(revision)s)
ON CONFLICT ON CONSTRAINT uq_procedural_skill DO UPDATE
SET trigger_pattern = EXCLUDED.trigger_pattern,
    policy = EXCLUDED.policy,
    tool_sequence = EXCLUDED.tool_sequence,
    success_count = p.success_count + EXCLUDED.success_count,
    failure_count = p.failure_count + EXCLUDED.failure_count,
    reward_count = p.reward_count + EXCLUDED.reward_count,
    avg_reward = CASE WHEN p.reward_count + EXCLUDED.reward_count = 0 THEN 0.0
        ELSE (p.avg_reward * p.reward_count + EXCLUDED.avg_reward * EXCLUDED.reward_count)
             / (p.reward_count + EXCLUDED.reward_count) END,
    embedding = EXCLUDED.embedding,
    embedding_model = EXCLUDED.embedding_model,
    metadata = p.metadata || EXCLUDED.metadata,
    version = p.version + CASE WHEN (p.trigger_pattern, p.policy, p.tool_sequence)
        IS DISTINCT FROM (EXCLUDED.trigger_pattern, EXCLUDED.policy, EXCLUDED.tool_sequence) THEN 1 ELSE 0 END,
    revision = EXCLUDED.revision,
    updated_at = now()
RETURNING *

-- name: record_outcome
-- POST outcome, and the shard for an interaction that names a skill; served by uq_procedural_skill.
UPDATE procedural_memory
SET success_count = success_count + %(successes)s,
    failure_count = failure_count + %(failures)s,
    avg_reward = CASE WHEN %(rewards)s = 0 THEN avg_reward
        ELSE (avg_reward * reward_count + %(reward)s) / (reward_count + 1) END,
    reward_count = reward_count + %(rewards)s,
    revision = %(revision)s,
    updated_at = now()
WHERE id = (
    SELECT id FROM procedural_memory
    WHERE tenant_id = %(tenant_id)s AND agent_id = %(agent_id)s AND skill_name = %(skill_name)s
      AND namespace = ANY(%(namespaces)s)
    ORDER BY namespace = 'agent' LIMIT 1)
RETURNING *

-- name: get_skill
-- GET skill: the user's own before the agent's; served by uq_procedural_skill.
SELECT * FROM procedural_memory
WHERE tenant_id = %(tenant_id)s AND agent_id = %(agent_id)s AND skill_name = %(skill_name)s
  AND namespace = ANY(%(namespaces)s)
ORDER BY namespace = 'agent' LIMIT 1

-- name: list_skills
-- GET skills: by proven reliability; served by idx_procedural_agent_rank without a sort.
SELECT * FROM procedural_memory
WHERE tenant_id = %(tenant_id)s AND agent_id = %(agent_id)s AND namespace = ANY(%(namespaces)s)
ORDER BY success_rate DESC, avg_reward DESC
LIMIT %(limit)s

-- name: add_skill_source
INSERT INTO memory_sources (tenant_id, agent_id, memory_id, tier, source_id)
VALUES (%(tenant_id)s, %(agent_id)s, %(memory_id)s, 'procedural', %(source_id)s)
ON CONFLICT DO NOTHING
