-- Remove messages from a session, or replace the content of one. A summary that may hold one of them goes.
-- KEYS: 1 messages  2 meta  3 messages that left  4 ids of those in the summary
-- ARGV: 1 'remove' or 'replace'  2 new content or ''  3.. ids
local wanted = {}
local changed = 0
for index = 3, #ARGV do
    wanted[ARGV[index]] = true
    if redis.call('SISMEMBER', KEYS[4], ARGV[index]) == 1 then
        redis.call('HDEL', KEYS[2], 'summary')
        redis.call('DEL', KEYS[4])
        changed = changed + 1
    end
end
for _, list in ipairs({KEYS[1], KEYS[3]}) do
    for index, item in ipairs(redis.call('LRANGE', list, 0, -1)) do
        local id = string.match(item, '"id":"(%x+)"')
        if id and wanted[id] then
            local bytes = -#item
            if ARGV[1] == 'remove' then
                redis.call('LREM', list, 1, item)
            else
                redis.call('LSET', list, index - 1, ARGV[2])
                bytes = #ARGV[2] - #item
            end
            if list == KEYS[1] then
                redis.call('HINCRBY', KEYS[2], 'bytes', bytes)
            end
            changed = changed + 1
        end
    end
end
if changed > 0 then -- a summary that is being written is not of what is here now
    redis.call('HINCRBY', KEYS[2], 'changes', 1)
end
return changed
