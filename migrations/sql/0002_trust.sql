-- Trust of the channel that an episode came through, and the facts of untrusted channels: kept, not recalled.
-- They have a table of their own rather than a mark in semantic_memory, so that no query that reads or changes facts,
-- old code's included, can meet one. It holds no vectors: a fact is embedded when it is released.
ALTER TABLE episodic_memory ADD COLUMN trust VARCHAR(16) NOT NULL DEFAULT 'user'
    CHECK (trust IN ('system', 'user', 'tool', 'external'));

CREATE TABLE quarantined_facts (
    id            UUID         NOT NULL DEFAULT gen_random_uuid(),  -- the fact keeps it when it is released
    tenant_id     VARCHAR(64)  NOT NULL,
    agent_id      VARCHAR(64)  NOT NULL,
    user_id       VARCHAR(64),
    namespace     VARCHAR(128) NOT NULL,
    namespace_id  BIGINT       NOT NULL REFERENCES namespaces,
    placement     SMALLINT     NOT NULL,
    fact          TEXT         NOT NULL,
    subject       VARCHAR(256),
    predicate     VARCHAR(128),
    object        TEXT,
    confidence    REAL         NOT NULL CHECK (confidence >= 0.0 AND confidence <= 1.0),
    content_hash  CHAR(64)     NOT NULL,
    valid_from    TIMESTAMPTZ  NOT NULL,
    metadata      JSONB        NOT NULL DEFAULT '{{}}',
    revision      BIGINT       NOT NULL,
    created_at    TIMESTAMPTZ  NOT NULL DEFAULT now(),
    PRIMARY KEY (id),
    CONSTRAINT uq_quarantined UNIQUE (namespace_id, content_hash)
);
-- GET quarantine, newest first.
CREATE INDEX idx_quarantined_listed ON quarantined_facts (tenant_id, agent_id, created_at DESC, id DESC);

ALTER TABLE quarantined_facts ENABLE ROW LEVEL SECURITY;
ALTER TABLE quarantined_facts FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant_isolation ON quarantined_facts USING (tenant_id = current_setting('mnemoray.tenant', true));
