-- name: facts_about
-- The shard, before it stores a fact: what is current about its subject; served by idx_semantic_subject_pred. The row of
-- the same words is left out: storing the fact again is what confirms that.
SELECT id, fact, subject, predicate, object, confidence, valid_from
FROM semantic_memory
WHERE tenant_id = %(tenant_id)s
  AND namespace_id = %(namespace_id)s
  AND placement = %(placement)s
  AND subject = %(subject)s
  AND valid_until IS NULL
  AND NOT is_deleted
  AND content_hash <> %(content_hash)s

-- name: confirm
-- The shard: a current fact was said again in other words.
UPDATE semantic_memory
SET confidence = GREATEST(confidence, %(confidence)s), revision = %(revision)s, updated_at = now()
WHERE id = %(id)s AND tenant_id = %(tenant_id)s AND placement = %(placement)s

-- name: retire
-- Key Query 3 for the facts that were judged: they stay as history, and no search shows them.
UPDATE semantic_memory
SET valid_until = now(), revision = %(revision)s, updated_at = now()
WHERE id = ANY(%(ids)s) AND tenant_id = %(tenant_id)s AND placement = %(placement)s AND valid_until IS NULL

-- name: supersedes
UPDATE semantic_memory SET supersedes = %(old)s
WHERE id = %(id)s AND tenant_id = %(tenant_id)s AND placement = %(placement)s
