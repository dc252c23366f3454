-- What came here of one origin after its newest heartbeat: commits are applied in their order, each in a transaction of its own, so the numbers
-- of transactions tell, and no clock. And its claims that are lodged here, as running ones. Some blocks of each table per call, as no index
-- knows the numbers: a place is a block and a line. A row without a key ends the list and only tells the number of blocks.
with beat as (
    select age(xmin) as age from onceway.heartbeats where origin = $1
), extent as (
    select ($2::bigint >> 16) + $5::bigint as until,
           greatest(pg_relation_size(to_regclass($4)), pg_relation_size('onceway.records_imported'), pg_relation_size('onceway.escrows'))
               / current_setting('block_size')::bigint as blocks
), latest as (
    select r.ctid as place, r.tenant, r.key, r.origin, r.state, r.epoch, r.attempt, r.nonce, r.fp_raw, r.fp_canonical, r.over, r.risk,
           r.request_id, r.doubt_status, r.answer_status, r.answer_headers, r.answer_body, r.answer_coding, r.answer_length, r.settled_at,
           r.held_ms, r.hold_ms, r.expires_at, r.due_ms, r.tombstone_ms, r.route, r.path, r.principal, r.accepted, r.doubted,
           r.settle_ms, r.recovery, {r_ends} as ends
      from onceway.records r
     where r.origin in ($1, $1 || '!')
       and r.ctid >= format('(%s,%s)', $2::bigint >> 16, $2::bigint & 65535)::tid
       and r.ctid < format('(%s,0)', ($2::bigint >> 16) + $5::bigint)::tid
       and age(r.xmin) <= coalesce((select age from beat), 2147483647)
    union all
    select e.ctid, e.tenant, e.key, e.origin, case when e.answer_status is null then 1 else 4 end::smallint, e.epoch, e.attempt, e.nonce,
           e.fp_raw, e.fp_canonical, '[]'::jsonb, '{}'::text[], e.request_id, null::smallint, e.answer_status, e.answer_headers,
           e.answer_body, e.answer_coding, e.answer_length, e.answered_at, e.stored_ms, e.hold_ms,
           e.expires_at, e.due_ms, e.tombstone_ms, e.route, e.path, e.principal, false,
           greatest(e.attempt % 10000 - 1, 0), e.settle_ms, e.recovery, e.due_ms
      from onceway.escrows e
     where e.origin = $1
       and e.ctid >= format('(%s,%s)', $2::bigint >> 16, $2::bigint & 65535)::tid
       and e.ctid < format('(%s,0)', ($2::bigint >> 16) + $5::bigint)::tid
)
select r.*, x.until << 16 as until, x.until < x.blocks as goes_on
  from extent x
  left join lateral (
      select (split_part(trim(r.place::text, '()'), ',', 1)::bigint << 16) + split_part(trim(r.place::text, '()'), ',', 2)::bigint as at,
             r.tenant, r.key, r.route, r.path,
             r.hold_ms,
             greatest(0, r.ends - case when r.origin like '%!' and r.state <> 5 then r.tombstone_ms else 0 end - {now}) as lives_ms,
             r.tombstone_ms,
             {columns}
        from latest r
       order by r.place
       fetch first ($3::bigint) rows with ties
  ) r on true
 order by r.at
