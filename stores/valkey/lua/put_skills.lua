-- Cache an agent's hot skills unless something newer was cached or dropped.
-- KEYS: 1 skills      ARGV: 1 revision  2 body ('' drops)  3 TTL s
local known = tonumber(redis.call('HGET', KEYS[1], 'revision') or '-1')
if tonumber(ARGV[1]) < known then
    return 0
end
redis.call('HSET', KEYS[1], 'revision', ARGV[1])
if ARGV[2] == '' then
    redis.call('HDEL', KEYS[1], 'body')
else
    redis.call('HSET', KEYS[1], 'body', ARGV[2])
end
redis.call('EXPIRE', KEYS[1], ARGV[3])
return 1
