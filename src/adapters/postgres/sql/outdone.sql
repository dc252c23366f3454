exists (
    select from onceway.records b
     where b.tenant = o.tenant and b.key = o.key and b.origin in (o.origin || '!', rtrim(o.origin, '!'))
       and (b.epoch, b.attempt, b.state, b.origin not like '%!') > (o.epoch, o.attempt, o.state, o.origin not like '%!')
)
