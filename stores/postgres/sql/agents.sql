-- name: lock_agent
-- Every transaction that changes an agent's memories: creates the row if need be, takes its lock, next revision.
INSERT INTO agents (tenant_id, agent_id, partition, revision)
VALUES (%(tenant_id)s, %(agent_id)s, %(partition)s, 1)
ON CONFLICT (tenant_id, agent_id) DO UPDATE SET revision = agents.revision + 1
RETURNING revision, retention

-- name: get_agent
-- Settings and revision; served by the primary key.
SELECT tenant_id, agent_id, team, revision, scoring, budget_ratios, retention
FROM agents WHERE tenant_id = %(tenant_id)s AND agent_id = %(agent_id)s

-- name: put_agent
-- Replaces an agent's settings; they are no memories, so the revision stays.
INSERT INTO agents (tenant_id, agent_id, partition, team, scoring, budget_ratios, retention)
VALUES (%(tenant_id)s, %(agent_id)s, %(partition)s, %(team)s, %(scoring)s, %(budget_ratios)s, %(retention)s)
ON CONFLICT (tenant_id, agent_id) DO UPDATE
SET team = EXCLUDED.team, scoring = EXCLUDED.scoring, budget_ratios = EXCLUDED.budget_ratios,
    retention = EXCLUDED.retention, updated_at = now()
RETURNING tenant_id, agent_id, team, revision, scoring, budget_ratios, retention
