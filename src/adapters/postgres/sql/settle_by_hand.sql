-- By hand: only what is in doubt, and whose attempt is over: it got an answer, or its hold has run out. The journal holds no body.
with ruled as (
    update {records} r
       set state = 4, answer_status = $8, answer_headers = $9, answer_body = $10, answer_coding = $11, answer_length = $12,
           settled_at = clock_timestamp(), doubt_status = null
     where r.tenant = $1 and r.key = $2 and r.origin = '{origin}' and r.epoch = $3 and r.attempt = $4 and r.nonce = $5
       and ((r.state = 2 and r.doubt_status is not null) or (r.state in (1, 2) and r.held_ms + r.hold_ms <= {now}))
       and exists (select from onceway.hold_gate(null))
    returning r.tenant, r.key, r.epoch, r.attempt
), journalled as (
    insert into onceway.journal (kind, tenant, key, origin, epoch, attempt, actor, reason, detail)
    select 'settled-by-hand', tenant, key, '{origin}', epoch, attempt, $6, $7, jsonb_build_object('status', $8::smallint, 'length', $12::int) from ruled
), unlisted as (
    delete from onceway.doubts d using ruled where d.tenant = ruled.tenant and d.key = ruled.key
)
select 1 from ruled
