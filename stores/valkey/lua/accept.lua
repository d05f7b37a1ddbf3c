-- Accept one write: idempotency, backpressure, working memory and ingest stream in one atomic step.
-- KEYS: 1 stream  2 operations  3 accepted  4 pending  5 session messages  6 session meta  7 session variables
--       8 session messages that left  9 ids of those in the summary  10 sessions of the agent  11 extraction stream
--       12 idempotency key (only when the write has one)
-- ARGV: 1 id  2 tenant  3 entry  4 message  5 max stream length  6 max messages  7 max bytes  8 session TTL s
--       9 fingerprint  10 idempotency TTL s  11 session key  12 messages that leave before they are summarised
--       13 request for a summary
-- Returns {'accepted', id} | {'duplicate', id of the first} | {'conflict', id of the first} | {'full', length}
if KEYS[12] then
    local known = redis.call('HMGET', KEYS[12], 'id', 'fingerprint')
    if known[1] then
        return {known[2] == ARGV[9] and 'duplicate' or 'conflict', known[1]}
    end
end
local length = redis.call('XLEN', KEYS[1])
if length >= tonumber(ARGV[5]) then
    return {'full', tostring(length)}
end
redis.call('XADD', KEYS[1], '*', 'kind', 'write', 'id', ARGV[1], 'tenant', ARGV[2], 'body', ARGV[3])
redis.call('HSET', KEYS[2], ARGV[1], ARGV[2])
redis.call('HINCRBY', KEYS[3], ARGV[2], 1)
redis.call('HINCRBY', KEYS[4], ARGV[2], 1)
if KEYS[12] then
    redis.call('HSET', KEYS[12], 'id', ARGV[1], 'fingerprint', ARGV[9])
    redis.call('EXPIRE', KEYS[12], ARGV[10])
end
local count = redis.call('RPUSH', KEYS[5], ARGV[4])
local bytes = redis.call('HINCRBY', KEYS[6], 'bytes', #ARGV[4])
while count > tonumber(ARGV[6]) or (bytes > tonumber(ARGV[7]) and count > 1) do
    local oldest = redis.call('LPOP', KEYS[5])
    count = count - 1
    bytes = redis.call('HINCRBY', KEYS[6], 'bytes', -#oldest)
    redis.call('HINCRBY', KEYS[6], 'spilled', 1)
    redis.call('RPUSH', KEYS[8], oldest)
end
-- What waits for a summary is bounded like the session itself; those before remain episodes.
redis.call('LTRIM', KEYS[8], -math.max(tonumber(ARGV[6]), tonumber(ARGV[12])), -1)
if redis.call('LLEN', KEYS[8]) >= tonumber(ARGV[12]) and redis.call('HSETNX', KEYS[6], 'asked', 1) == 1 then
    redis.call('XADD', KEYS[11], '*', 'kind', 'summarize', 'id', '', 'tenant', ARGV[2], 'body', ARGV[13])
end
redis.call('SADD', KEYS[10], ARGV[11])
for index = 5, 10 do
    redis.call('EXPIRE', KEYS[index], ARGV[8])
end
return {'accepted', ARGV[1]}
