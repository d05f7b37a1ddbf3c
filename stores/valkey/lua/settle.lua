-- Take settled entries out of the stream and publish the agents' revisions, in one atomic step.
-- KEYS: 1 stream  2 operations  3 pending  4.. revision keys
-- ARGV: 1 group  2 number of entries, then per entry: stream id, operation id or '', tenant; then the revisions
local at = 3
for _ = 1, tonumber(ARGV[2]) do
    redis.call('XACK', KEYS[1], ARGV[1], ARGV[at])
    local removed = redis.call('XDEL', KEYS[1], ARGV[at])
    if removed == 1 and ARGV[at + 1] ~= '' then
        redis.call('HDEL', KEYS[2], ARGV[at + 1])
        redis.call('HINCRBY', KEYS[3], ARGV[at + 2], -1)
    end
    at = at + 3
end
for index = 4, #KEYS do
    local known = tonumber(redis.call('GET', KEYS[index]) or '0')
    if tonumber(ARGV[at]) > known then
        redis.call('SET', KEYS[index], ARGV[at])
    end
    at = at + 1
end
return redis.status_reply('OK')
