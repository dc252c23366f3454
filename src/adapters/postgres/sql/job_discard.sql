-- Not while a worker has it: that one would go on with what it read. A row of which nothing happened is no longer waiting, and its new
-- nonce stops a worker that was given up; one in doubt keeps its nonce, or a late answer could not be settled.
with held as materialized (
    select from onceway.jobs
     where tenant = $1 and key = $2 and (state = 2 or nonce is null or next_ms <= {now})
       and exists (select from onceway.hold_gate(null))
       for update
), r as (
    update {records} r
       set accepted = false, nonce = case r.state when 3 then gen_random_uuid() else r.nonce end
     where r.tenant = $1 and r.key = $2 and r.origin = '{origin}'
       and not (r.state = 1 and r.held_ms + r.hold_ms > {now})
       and exists (select from held)
    returning r.epoch, r.attempt
), j as (
    delete from onceway.jobs j
     where j.tenant = $1 and j.key = $2 and exists (select from held)
       and (exists (select from r) or not exists (
           select from {records} o where o.tenant = $1 and o.key = $2 and o.origin = '{origin}'
       ))
    returning j.tenant, j.key
), noted as (
    insert into onceway.journal (kind, tenant, key, origin, actor, reason, epoch, attempt)
    select 'job-dropped', j.tenant, j.key, '{origin}', $3, $4, r.epoch, r.attempt from j left join r on true
)
select 1 from j
