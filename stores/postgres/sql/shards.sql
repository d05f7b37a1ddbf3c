-- name: assign
-- A deployment: the new owner of a partition; an unchanged one keeps its epoch. Served by the primary key.
INSERT INTO shard_assignments AS a (partition, shard) VALUES (%(partition)s, %(shard)s)
ON CONFLICT (partition) DO UPDATE SET shard = EXCLUDED.shard, epoch = a.epoch + 1, since = now()
WHERE a.shard <> EXCLUDED.shard
RETURNING partition

-- name: owned
-- A shard, every second: its partitions. Small table, scanned.
SELECT partition, epoch FROM shard_assignments WHERE shard = %(shard)s

-- name: fence
-- A shard's transaction: holds the assignment until commit, so a new owner starts after it. Primary key.
SELECT 1 AS held FROM shard_assignments
WHERE partition = %(partition)s AND shard = %(shard)s AND epoch = %(epoch)s
FOR SHARE
