-- Put an accepted write back into the stream; a second call while it is pending changes nothing.
-- KEYS: 1 stream  2 operations  3 pending      ARGV: 1 id  2 tenant  3 entry
if redis.call('HEXISTS', KEYS[2], ARGV[1]) == 1 then
    return 0
end
redis.call('XADD', KEYS[1], '*', 'kind', 'write', 'id', ARGV[1], 'tenant', ARGV[2], 'body', ARGV[3])
redis.call('HSET', KEYS[2], ARGV[1], ARGV[2])
redis.call('HINCRBY', KEYS[3], ARGV[2], 1)
return 1
