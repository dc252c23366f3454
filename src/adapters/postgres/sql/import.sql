-- Beside the leaf that replication writes. A later state of one attempt replaces an earlier one, a lower token never a higher. Sorted, so
-- that two gateways cannot deadlock. The life of such a row ends with its tombstone: nobody makes one of it here.
with g as materialized (
    select from onceway.hold_gate(null)
), made as (
    insert into onceway.records_imported as i (
        tenant, key, origin, state, epoch, attempt, nonce, fp_raw, fp_canonical, over, risk, request_id, doubt_status, answer_status,
        answer_headers, answer_body, answer_coding, answer_length, settled_at, held_at, held_ms, hold_ms, expires_at, due_ms, tombstone_ms, route,
        path, principal, accepted, doubted, settle_ms, recovery
    )
    select u.tenant, u.key, $1::text || '!', u.state, u.epoch, u.attempt, u.nonce, u.fp_raw, u.fp_canonical, u.over,
           array(select jsonb_array_elements_text(u.risk)), u.request_id, u.doubt_status, u.answer_status, u.answer_headers, u.answer_body,
           u.answer_coding, u.answer_length, clock_timestamp() - u.age_ms * interval '1 millisecond', clock_timestamp(),
           {start}, u.hold_ms, timestamptz 'epoch' + u.expires_ms * interval '1 millisecond',
           least({start} + u.lives_ms + case u.state when 5 then 0 else u.tombstone_ms end, {never_ms}),
           u.tombstone_ms, u.route, u.path, u.principal, u.accepted, u.doubted, u.settle_ms, u.recovery
      from unnest(
               $2::text[], $3::bytea[], $4::smallint[], $5::bigint[], $6::int[], $7::uuid[], $8::bytea[], $9::bytea[], $10::jsonb[],
               $11::jsonb[], $12::uuid[], $13::smallint[], $14::smallint[], $15::bytea[], $16::bytea[], $17::smallint[], $18::int[],
               $19::bigint[], $20::bigint[], $21::bigint[], $22::bigint[], $23::bigint[], $24::text[], $25::text[], $26::bytea[],
               $27::boolean[], $28::int[], $29::bigint[], $30::int[]
           ) as u(
               tenant, key, state, epoch, attempt, nonce, fp_raw, fp_canonical, over, risk, request_id, doubt_status, answer_status,
               answer_headers, answer_body, answer_coding, answer_length, age_ms, hold_ms, expires_ms, lives_ms, tombstone_ms, route, path,
               principal, accepted, doubted, settle_ms, recovery
           )
     where exists (select from g)
     order by u.tenant collate "C", u.key
    on conflict (tenant, key, origin) do update
       {copied}
     where (i.epoch, i.attempt, i.state) < (excluded.epoch, excluded.attempt, excluded.state)
)
select exists (select from g) as open
