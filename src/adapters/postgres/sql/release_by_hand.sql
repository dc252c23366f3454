-- By hand: only what is in doubt, and whose attempt is surely over: hold and settle time have run out. The journal holds no body.
with ruled as (
    update {records} r
       set state = 3, doubt_status = null
     where r.tenant = $1 and r.key = $2 and r.origin = '{origin}' and r.epoch = $3 and r.attempt = $4 and r.nonce = $5
       and r.state in (1, 2) and r.hold_ms + r.settle_ms <= greatest({now} - r.held_ms, 0)
       and exists (select from onceway.hold_gate(null))
    returning r.tenant, r.key, r.epoch, r.attempt
), journalled as (
    insert into onceway.journal (kind, tenant, key, origin, epoch, attempt, actor, reason, detail)
    select 'released-by-hand', tenant, key, '{origin}', epoch, attempt, $6, $7, '{}' from ruled
), unlisted as (
    delete from onceway.doubts d using ruled where d.tenant = ruled.tenant and d.key = ruled.key
)
select 1 from ruled
