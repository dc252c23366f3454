-- Escrow rows of one origin become own rows, and are gone, in one statement: a crash leaves each of them here or there. Sorted, so that
-- two gateways cannot deadlock; whoever waited finds the rows gone and takes the next ones. Hold and life count from the lodging, which was
-- before anything was sent. Of the attempts before, which an escrow row does not tell apart, all may have happened. What is final here stays; open rows of lower tokens were superseded by whoever lodged.
with g as materialized (
    select from onceway.hold_gate(null)
), due as materialized (
    select e.* from onceway.escrows e
     where e.origin = $1 and exists (select from g)
     order by e.tenant, e.key
     limit $2::bigint
       for update of e
), off as (
    delete from onceway.escrows e using due d
     where e.tenant = d.tenant and e.key = d.key and e.origin = d.origin
    returning 1
), made as (
    insert into {records} as r (
        tenant, key, origin, state, epoch, attempt, nonce, fp_raw, fp_canonical, request_id, held_at, held_ms, hold_ms, settle_ms, expires_at, due_ms,
        tombstone_ms, route, path, principal, answer_status, answer_headers, answer_body, answer_coding, answer_length, settled_at, doubted,
        recovery
    )
    select d.tenant, d.key, '{origin}', case when d.answer_status is null then 2 else 4 end, d.epoch, d.attempt, d.nonce, d.fp_raw,
           d.fp_canonical, d.request_id, d.stored_at, d.stored_ms, d.hold_ms, d.settle_ms, d.expires_at, d.due_ms, d.tombstone_ms,
           d.route, d.path, d.principal, d.answer_status, d.answer_headers, d.answer_body, d.answer_coding, d.answer_length,
           d.answered_at, greatest(d.attempt % 10000 - 1, 0), d.recovery
      from due d
     where not exists (
         select from onceway.records o
          where o.tenant = d.tenant and o.key = d.key and o.origin in (d.origin, d.origin || '!')
            and (o.epoch, o.attempt) >= (d.epoch, d.attempt)
     )
    on conflict (tenant, key, origin) do update
       set state = excluded.state, epoch = excluded.epoch, attempt = excluded.attempt, nonce = excluded.nonce,
           fp_raw = excluded.fp_raw, fp_canonical = excluded.fp_canonical, request_id = excluded.request_id, risk = '{}', accepted = false,
           doubt_status = null, held_at = excluded.held_at, held_ms = excluded.held_ms, hold_ms = excluded.hold_ms,
           settle_ms = excluded.settle_ms, expires_at = excluded.expires_at,
           due_ms = excluded.due_ms, tombstone_ms = excluded.tombstone_ms, route = excluded.route, path = excluded.path,
           principal = excluded.principal, answer_status = excluded.answer_status, answer_headers = excluded.answer_headers,
           answer_body = excluded.answer_body, answer_coding = excluded.answer_coding, answer_length = excluded.answer_length,
           settled_at = excluded.settled_at, doubted = excluded.doubted, recovery = excluded.recovery
     where (r.epoch, r.attempt) < (excluded.epoch, excluded.attempt) and r.state in (1, 2, 3)
    returning r.tenant, r.key, r.state
), listed as (
    insert into onceway.doubts as d (tenant, key) select tenant, key from made where state = 2
    on conflict (tenant, key) do update set since = excluded.since
)
select (select count(*) from off) as taken, exists (select from g) as open
