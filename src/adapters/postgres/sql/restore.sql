-- Own rows that this store may lack, before its boot is approved, and not later: a key may have been forgotten since. The gate is held, so that
-- no approval comes between. A later state of one attempt replaces an earlier one, a lower token never a higher. Sorted, so that two
-- gateways cannot deadlock. Holds begin anew: the attempt may run.
with g as materialized (
    select from onceway.hold_gate(null)
), made as (
    insert into {records} as i (
        tenant, key, origin, state, epoch, attempt, nonce, fp_raw, fp_canonical, over, risk, request_id, doubt_status, answer_status,
        answer_headers, answer_body, answer_coding, answer_length, settled_at, held_at, held_ms, hold_ms, expires_at, due_ms, tombstone_ms, route,
        path, principal, accepted, doubted, settle_ms, recovery
    )
    select distinct on (u.tenant collate "C", u.key)
           u.tenant, u.key, '{origin}', u.state, u.epoch, u.attempt, u.nonce, u.fp_raw, u.fp_canonical, u.over,
           array(select jsonb_array_elements_text(u.risk)), u.request_id, u.doubt_status, u.answer_status, u.answer_headers, u.answer_body,
           u.answer_coding, u.answer_length, clock_timestamp() - u.age_ms * interval '1 millisecond', clock_timestamp(),
           {start}, u.hold_ms, timestamptz 'epoch' + u.expires_ms * interval '1 millisecond',
           least({start} + u.lives_ms, {never_ms}),
           u.tombstone_ms, u.route, u.path, u.principal, u.accepted, u.doubted, u.settle_ms, u.recovery
      from unnest(
               $1::text[], $2::bytea[], $3::smallint[], $4::bigint[], $5::int[], $6::uuid[], $7::bytea[], $8::bytea[], $9::jsonb[],
               $10::jsonb[], $11::uuid[], $12::smallint[], $13::smallint[], $14::bytea[], $15::bytea[], $16::smallint[], $17::int[],
               $18::bigint[], $19::bigint[], $20::bigint[], $21::bigint[], $22::bigint[], $23::text[], $24::text[], $25::bytea[],
               $26::boolean[], $27::int[], $28::bigint[], $29::int[]
           ) as u(
               tenant, key, state, epoch, attempt, nonce, fp_raw, fp_canonical, over, risk, request_id, doubt_status, answer_status,
               answer_headers, answer_body, answer_coding, answer_length, age_ms, hold_ms, expires_ms, lives_ms, tombstone_ms, route, path,
               principal, accepted, doubted, settle_ms, recovery
           )
     where not exists (select from g)
     order by u.tenant collate "C", u.key, u.epoch desc, u.attempt desc, u.state desc
    on conflict (tenant, key, origin) do update
       {copied}
     where (i.epoch, i.attempt, i.state) < (excluded.epoch, excluded.attempt, excluded.state)
)
select exists (select from g) as open
