-- An answer that ended the attempt ($7) leaves no time to wait for.
-- Whatever is in doubt stands on the list from then on, in the same transaction. An entry that an earlier attempt left is renewed, or
-- whoever is just clearing the list would take it off (see unlist.sql).
with doubted as (
    update {records} r
       set state = 2, doubt_status = $6, hold_ms = case when $7 then 0 else r.hold_ms end,
           settle_ms = case when $7 then 0 else r.settle_ms end
     where r.tenant = $1 and r.key = $2 and r.origin = '{origin}' and r.epoch = $3 and r.attempt = $4 and r.nonce = $5
       and r.state = 1
       and exists (select from onceway.hold_gate(null))
    returning r.tenant, r.key
), listed as (
    insert into onceway.doubts as d (tenant, key, excerpt) select tenant, key, $8 from doubted
    on conflict (tenant, key) do update set since = excluded.since, excerpt = excluded.excerpt
)
select 1 from doubted
