(not {outdone} or (r.settled_at is not null and exists (
    select from onceway.records b
     where b.tenant = r.tenant and b.key = r.key and b.origin in (r.origin || '!', rtrim(r.origin, '!'))
       and b.settled_at is not null and b.nonce <> r.nonce
)))
