exists (
    select from onceway.records b
     where b.tenant = {row}.tenant and b.key = {row}.key and b.origin in ({row}.origin || '!', rtrim({row}.origin, '!'))
       and (b.epoch, b.attempt, b.state, b.origin not like '%!') > ({row}.epoch, {row}.attempt, {row}.state, {row}.origin not like '%!')
)
