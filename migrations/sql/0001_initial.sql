-- The three memory tables of the specification, with tenants, revisions and embedding versions;
-- agents, sessions and namespaces; the write ledger, dead letters and the audit log.
-- {dimension} is the dimension of the configured embedding model.

CREATE TABLE agents (
    tenant_id      VARCHAR(64)  NOT NULL,
    agent_id       VARCHAR(64)  NOT NULL,
    partition      SMALLINT     NOT NULL,
    team           VARCHAR(64),
    revision       BIGINT       NOT NULL DEFAULT 0,     -- orders all changes of this agent's memories
    scoring        JSONB        NOT NULL DEFAULT '{{}}',  -- overrides of the scoring weights
    budget_ratios  JSONB        NOT NULL DEFAULT '{{}}',  -- overrides of the token-budget shares
    retention      JSONB        NOT NULL DEFAULT '{{}}',  -- event type -> retention tier
    created_at     TIMESTAMPTZ  NOT NULL DEFAULT now(),
    updated_at     TIMESTAMPTZ  NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant_id, agent_id)
);

CREATE TABLE sessions (
    tenant_id     VARCHAR(64) NOT NULL,
    agent_id      VARCHAR(64) NOT NULL,
    user_id       VARCHAR(64) NOT NULL,
    session_id    VARCHAR(64) NOT NULL,
    episodes      BIGINT      NOT NULL DEFAULT 0,
    started_at    TIMESTAMPTZ NOT NULL DEFAULT now(),
    last_seen_at  TIMESTAMPTZ NOT NULL DEFAULT now(),
    ended_at      TIMESTAMPTZ,
    PRIMARY KEY (tenant_id, agent_id, user_id, session_id)
);

-- A namespace's facts and skills live in one placement: a pool, or a partition of its own that an erasure drops.
CREATE TABLE namespaces (
    namespace_id  BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant_id     VARCHAR(64)  NOT NULL,
    agent_id      VARCHAR(64)  NOT NULL,  -- '' for the tenant-wide namespace 'world'
    name          VARCHAR(128) NOT NULL,
    user_id       VARCHAR(64),
    placement     SMALLINT     NOT NULL,
    live_count    BIGINT       NOT NULL DEFAULT 0,  -- live facts; decides exact scan or graph
    created_at    TIMESTAMPTZ  NOT NULL DEFAULT now(),
    UNIQUE (tenant_id, agent_id, name)
);

CREATE TABLE episodic_memory (
    id               UUID        NOT NULL DEFAULT gen_random_uuid(),
    tenant_id        VARCHAR(64) NOT NULL,
    agent_id         VARCHAR(64) NOT NULL,
    user_id          VARCHAR(64) NOT NULL,
    session_id       VARCHAR(64) NOT NULL,
    event_type       VARCHAR(32) NOT NULL
        CHECK (event_type IN ('conversation', 'action', 'observation', 'outcome')),
    role             VARCHAR(16) NOT NULL DEFAULT 'user',
    speaker          VARCHAR(128),
    content          TEXT        NOT NULL,
    content_hash     CHAR(64)    NOT NULL,
    outcome          VARCHAR(16)
        CHECK (outcome IN ('success', 'failure', 'partial', 'unknown')),
    importance       REAL        NOT NULL DEFAULT 0.5
        CHECK (importance >= 0.0 AND importance <= 1.0),
    embedding        vector({dimension}),
    embedding_model  VARCHAR(128),
    embedding_next   vector({dimension}),
    embedding_next_model VARCHAR(128),
    access_count     INTEGER     NOT NULL DEFAULT 0,
    last_accessed_at TIMESTAMPTZ,
    retention_tier   VARCHAR(16) NOT NULL DEFAULT 'medium_term'
        CHECK (retention_tier IN ('transient', 'session', 'short_term',
                                  'medium_term', 'long_term', 'permanent')),
    extraction       VARCHAR(16) NOT NULL DEFAULT 'done'
        CHECK (extraction IN ('done', 'pending', 'off')),
    skill            VARCHAR(128),
    is_deleted       BOOLEAN     NOT NULL DEFAULT false,
    metadata         JSONB       NOT NULL DEFAULT '{{}}',
    revision         BIGINT      NOT NULL,
    created_at       TIMESTAMPTZ NOT NULL DEFAULT now(),  -- when it happened
    recorded_at      TIMESTAMPTZ NOT NULL DEFAULT now(),  -- when it was stored; retention counts from here
    expires_at       TIMESTAMPTZ,
    PRIMARY KEY (id, created_at)
) PARTITION BY RANGE (created_at);

-- Recent-episode fetch: "last N episodes for this agent/session" (Key Query 2).
CREATE INDEX idx_episodic_agent_recent
    ON episodic_memory (tenant_id, agent_id, session_id, created_at DESC)
    WHERE is_deleted = false;
-- Exact recall and listing within one user's episodes.
CREATE INDEX idx_episodic_scope
    ON episodic_memory (tenant_id, agent_id, user_id, created_at DESC)
    WHERE is_deleted = false;
-- ANN recall; PostgreSQL builds one graph per partition from this parent index.
CREATE INDEX idx_episodic_embedding
    ON episodic_memory USING hnsw (embedding vector_cosine_ops)
    WITH (m = 16, ef_construction = 200);
-- Retention sweep: find rows past their TTL cheaply.
CREATE INDEX idx_episodic_expires ON episodic_memory (expires_at)
    WHERE is_deleted = false;
-- "What changed since revision r" of one agent.
CREATE INDEX idx_episodic_revision ON episodic_memory (tenant_id, agent_id, revision);
-- Episodes that wait for extraction.
CREATE INDEX idx_episodic_extraction ON episodic_memory (tenant_id, agent_id)
    WHERE extraction = 'pending';

CREATE TABLE semantic_memory (
    id                UUID         NOT NULL DEFAULT gen_random_uuid(),
    tenant_id         VARCHAR(64)  NOT NULL,
    agent_id          VARCHAR(64)  NOT NULL,
    user_id           VARCHAR(64),
    namespace         VARCHAR(128) NOT NULL,
    namespace_id      BIGINT       NOT NULL REFERENCES namespaces,
    placement         SMALLINT     NOT NULL,
    fact              TEXT         NOT NULL,
    subject           VARCHAR(256),
    predicate         VARCHAR(128),
    object            TEXT,
    confidence        REAL         NOT NULL DEFAULT 0.7
        CHECK (confidence >= 0.0 AND confidence <= 1.0),
    source_episode_id UUID,
    embedding         vector({dimension}) NOT NULL,
    embedding_model   VARCHAR(128) NOT NULL,
    embedding_next    vector({dimension}),
    embedding_next_model VARCHAR(128),
    content_hash      CHAR(64)     NOT NULL,
    supersedes        UUID,
    access_count      INTEGER      NOT NULL DEFAULT 0,
    last_accessed_at  TIMESTAMPTZ,
    valid_from        TIMESTAMPTZ  NOT NULL DEFAULT now(),
    valid_until       TIMESTAMPTZ,
    is_deleted        BOOLEAN      NOT NULL DEFAULT false,
    metadata          JSONB        NOT NULL DEFAULT '{{}}',
    revision          BIGINT       NOT NULL,
    created_at        TIMESTAMPTZ  NOT NULL DEFAULT now(),
    updated_at        TIMESTAMPTZ  NOT NULL DEFAULT now(),
    expires_at        TIMESTAMPTZ,
    PRIMARY KEY (id, placement),
    -- The specification's UNIQUE (namespace, content_hash): a namespace is identified by its tenant, agent and
    -- name, and a partitioned table needs its partition key in every unique constraint.
    CONSTRAINT uq_semantic_dedup UNIQUE (namespace_id, content_hash, placement)
) PARTITION BY LIST (placement);

CREATE TABLE semantic_memory_pool_0 PARTITION OF semantic_memory FOR VALUES IN (0);
CREATE TABLE semantic_memory_pool_1 PARTITION OF semantic_memory FOR VALUES IN (1);
CREATE TABLE semantic_memory_pool_2 PARTITION OF semantic_memory FOR VALUES IN (2);
CREATE TABLE semantic_memory_pool_3 PARTITION OF semantic_memory FOR VALUES IN (3);

-- ANN recall over facts (Key Query 1).
CREATE INDEX idx_semantic_embedding ON semantic_memory
    USING hnsw (embedding vector_cosine_ops) WITH (m = 16, ef_construction = 200);
-- Namespace scan: exact recall, listing and erasure.
CREATE INDEX idx_semantic_namespace ON semantic_memory (namespace_id)
    WHERE is_deleted = false;
-- Contradiction resolution (Key Query 3).
CREATE INDEX idx_semantic_subject_pred ON semantic_memory (namespace_id, subject, predicate)
    WHERE valid_until IS NULL AND is_deleted = false;
CREATE INDEX idx_semantic_revision ON semantic_memory (tenant_id, agent_id, revision);

CREATE TABLE procedural_memory (
    id               UUID         NOT NULL DEFAULT gen_random_uuid(),
    tenant_id        VARCHAR(64)  NOT NULL,
    agent_id         VARCHAR(64)  NOT NULL,
    user_id          VARCHAR(64),  -- NULL for a skill of the agent, open to all its users
    namespace        VARCHAR(128) NOT NULL DEFAULT 'agent',
    skill_name       VARCHAR(128) NOT NULL,
    trigger_pattern  TEXT         NOT NULL,
    policy           JSONB        NOT NULL,
    tool_sequence    JSONB,
    success_count    INTEGER      NOT NULL DEFAULT 0,
    failure_count    INTEGER      NOT NULL DEFAULT 0,
    success_rate     REAL GENERATED ALWAYS AS (
        CASE WHEN (success_count + failure_count) = 0 THEN 0.0
             ELSE success_count::REAL / (success_count + failure_count)
        END
    ) STORED,
    reward_count     INTEGER      NOT NULL DEFAULT 0,
    avg_reward       REAL         NOT NULL DEFAULT 0.0,
    embedding        vector({dimension}),
    embedding_model  VARCHAR(128),
    embedding_next   vector({dimension}),
    embedding_next_model VARCHAR(128),
    access_count     INTEGER      NOT NULL DEFAULT 0,
    last_accessed_at TIMESTAMPTZ,
    version          INTEGER      NOT NULL DEFAULT 1,
    metadata         JSONB        NOT NULL DEFAULT '{{}}',
    revision         BIGINT       NOT NULL,
    created_at       TIMESTAMPTZ  NOT NULL DEFAULT now(),
    updated_at       TIMESTAMPTZ  NOT NULL DEFAULT now(),
    PRIMARY KEY (id),
    CONSTRAINT uq_procedural_skill UNIQUE (tenant_id, agent_id, namespace, skill_name)
);

-- Retrieval by relevance then reliability: ANN over the trigger embedding.
CREATE INDEX idx_procedural_embedding ON procedural_memory
    USING hnsw (embedding vector_cosine_ops) WITH (m = 16, ef_construction = 200);
-- "Best skills for this agent": ranking by proven reliability.
CREATE INDEX idx_procedural_agent_rank
    ON procedural_memory (tenant_id, agent_id, success_rate DESC, avg_reward DESC);
CREATE INDEX idx_procedural_revision ON procedural_memory (tenant_id, agent_id, revision);

-- Which episodes a fact or skill was derived from; when the last one goes, so does the derived memory.
CREATE TABLE memory_sources (
    tenant_id  VARCHAR(64) NOT NULL,
    agent_id   VARCHAR(64) NOT NULL,
    memory_id  UUID        NOT NULL,
    tier       VARCHAR(16) NOT NULL CHECK (tier IN ('semantic', 'procedural')),
    source_id  UUID        NOT NULL,
    PRIMARY KEY (memory_id, source_id)
);
CREATE INDEX idx_memory_sources_source ON memory_sources (source_id);

CREATE TABLE memory_history (
    tenant_id  VARCHAR(64) NOT NULL,
    agent_id   VARCHAR(64) NOT NULL,
    memory_id  UUID        NOT NULL,
    revision   BIGINT      NOT NULL,
    event      VARCHAR(16) NOT NULL CHECK (event IN ('created', 'updated', 'superseded')),
    before     JSONB,
    after      JSONB,
    at         TIMESTAMPTZ NOT NULL DEFAULT now(),
    PRIMARY KEY (memory_id, revision, event)
);

-- Ids that were deleted: they keep writes in flight from bringing a memory back, and tell readers what left.
CREATE TABLE tombstones (
    tenant_id  VARCHAR(64) NOT NULL,
    agent_id   VARCHAR(64) NOT NULL,
    memory_id  UUID        NOT NULL,
    revision   BIGINT      NOT NULL,
    at         TIMESTAMPTZ NOT NULL DEFAULT now(),
    PRIMARY KEY (memory_id)
);
CREATE INDEX idx_tombstones_revision ON tombstones (tenant_id, agent_id, revision);

-- When everything of a user was deleted at an agent: writes accepted before it are not stored after it.
CREATE TABLE user_deletions (
    tenant_id  VARCHAR(64) NOT NULL,
    agent_id   VARCHAR(64) NOT NULL,
    user_id    VARCHAR(64) NOT NULL,
    at         TIMESTAMPTZ NOT NULL,
    PRIMARY KEY (tenant_id, agent_id, user_id)
);

-- How every accepted write ended.
CREATE TABLE write_ledger (
    operation_id     UUID        NOT NULL,
    tenant_id        VARCHAR(64) NOT NULL,
    agent_id         VARCHAR(64) NOT NULL,
    state            VARCHAR(16) NOT NULL
        CHECK (state IN ('stored', 'duplicate', 'rejected', 'dead_lettered')),
    reason           TEXT,
    memory_ids       UUID[]      NOT NULL DEFAULT '{{}}',
    idempotency_hash CHAR(64),
    attempts         INTEGER     NOT NULL DEFAULT 1,
    accepted_at      TIMESTAMPTZ NOT NULL,
    settled_at       TIMESTAMPTZ NOT NULL DEFAULT now(),
    PRIMARY KEY (operation_id)
);
CREATE UNIQUE INDEX uq_ledger_idempotency
    ON write_ledger (tenant_id, agent_id, idempotency_hash)
    WHERE idempotency_hash IS NOT NULL AND state <> 'duplicate';
CREATE INDEX idx_ledger_tenant_state ON write_ledger (tenant_id, state);

CREATE TABLE dead_letters (
    id           UUID        NOT NULL,
    tenant_id    VARCHAR(64) NOT NULL,
    agent_id     VARCHAR(64) NOT NULL,
    user_id      VARCHAR(64) NOT NULL,
    partition    SMALLINT    NOT NULL,
    payload      BYTEA       NOT NULL,
    content      TEXT        NOT NULL,
    error        TEXT        NOT NULL,
    attempts     INTEGER     NOT NULL,
    failed_at    TIMESTAMPTZ NOT NULL DEFAULT now(),
    PRIMARY KEY (id)
);
CREATE INDEX idx_dead_letters_tenant ON dead_letters (tenant_id, failed_at, id);

-- Who did what, without the content; rows can be added, never changed or removed.
CREATE TABLE audit_log (
    id         BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant_id  VARCHAR(64) NOT NULL,
    agent_id   VARCHAR(64),
    action     VARCHAR(32) NOT NULL,
    subject    TEXT        NOT NULL,
    details    JSONB       NOT NULL DEFAULT '{{}}',
    at         TIMESTAMPTZ NOT NULL DEFAULT now()
);

CREATE FUNCTION refuse_audit_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'the audit log is append-only';
END $$;
CREATE TRIGGER audit_log_is_append_only BEFORE UPDATE OR DELETE ON audit_log
    FOR EACH ROW EXECUTE FUNCTION refuse_audit_change();
CREATE TRIGGER audit_log_is_not_truncated BEFORE TRUNCATE ON audit_log
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_audit_change();

-- Which shard owns a partition; a shard writes only under the epoch that it was given.
CREATE TABLE shard_assignments (
    partition  SMALLINT     PRIMARY KEY,
    shard      VARCHAR(128) NOT NULL,
    epoch      BIGINT       NOT NULL DEFAULT 1,
    since      TIMESTAMPTZ  NOT NULL DEFAULT now()
);

-- Months are attached, not created in place: ATTACH lets readers and writers of other months go on.
CREATE FUNCTION ensure_episodic_partition(moment TIMESTAMPTZ) RETURNS TEXT LANGUAGE plpgsql AS $$
DECLARE
    first DATE := date_trunc('month', moment AT TIME ZONE 'UTC')::date;
    next  DATE := (first + INTERVAL '1 month')::date;
    name  TEXT := 'episodic_memory_' || to_char(first, 'YYYY_MM');
BEGIN
    IF to_regclass(name) IS NOT NULL THEN
        RETURN name;
    END IF;
    -- A table lock, not an advisory one: it makes this backend see what others have attached meanwhile.
    LOCK TABLE episodic_memory IN SHARE UPDATE EXCLUSIVE MODE;
    IF to_regclass(name) IS NOT NULL THEN
        RETURN name;
    END IF;
    EXECUTE format('CREATE TABLE %I (LIKE episodic_memory INCLUDING DEFAULTS INCLUDING CONSTRAINTS)', name);
    EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', name);
    EXECUTE format('ALTER TABLE %I FORCE ROW LEVEL SECURITY', name);
    EXECUTE format('ALTER TABLE episodic_memory ATTACH PARTITION %I FOR VALUES FROM (%L) TO (%L)',
                   name, first || ' 00:00:00+00', next || ' 00:00:00+00');
    RETURN name;
END $$;

-- Second net under the tenant condition of every query: without a tenant nothing is visible.
DO $$
DECLARE
    guarded TEXT;
BEGIN
    FOREACH guarded IN ARRAY ARRAY['agents', 'sessions', 'namespaces', 'episodic_memory', 'semantic_memory',
        'procedural_memory', 'memory_sources', 'memory_history', 'tombstones', 'user_deletions', 'write_ledger', 'dead_letters',
        'audit_log']
    LOOP
        EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', guarded);
        EXECUTE format('ALTER TABLE %I FORCE ROW LEVEL SECURITY', guarded);
        EXECUTE format('CREATE POLICY tenant_isolation ON %I '
                       'USING (tenant_id = current_setting(''mnemoray.tenant'', true))', guarded);
    END LOOP;
    FOR guarded IN SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = 'semantic_memory'::regclass
    LOOP
        EXECUTE format('ALTER TABLE %s ENABLE ROW LEVEL SECURITY', guarded);
        EXECUTE format('ALTER TABLE %s FORCE ROW LEVEL SECURITY', guarded);
    END LOOP;
END $$;
