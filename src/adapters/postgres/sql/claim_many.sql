-- First claims of many keys, all under the gate's version $4: the rows that were made, and what stood of each key. Of a nonce that is not among
-- them nothing was written: another claim was faster, or the gate has moved. Sorted, so that two batches cannot deadlock.
-- The plan is made once, perhaps over an empty leaf: `offset 0` keeps a look at one key from becoming a join, which would read the whole index.
-- Where all keys stand, the claims are not unpacked and the gate is not held. Of a row that was made only what is new goes back: 26 columns cost
-- more than its entry in an index.
with seen as materialized (
    select a.nonce as asked, r.*
      from unnest($1::text[], $2::bytea[], $3::uuid[]) as a(tenant, key, nonce)
     cross join lateral (select s.* from onceway.records s where s.tenant = a.tenant and s.key = a.key offset 0) r
), g as materialized (
    select g.epoch, {first_attempt} as attempt from onceway.hold_gate($4) g
), made as (
    insert into {records} as r (
        tenant, key, origin, state, epoch, attempt, nonce, fp_raw, fp_canonical, request_id, held_at, held_ms, hold_ms, settle_ms, {lifetime_columns}
    )
    select a.tenant, a.key, '{origin}', 1, g.epoch, g.attempt, a.nonce, a.fp_raw, a.fp_canonical, a.request_id,
           clock_timestamp(), {start}, a.hold_ms, a.settle_ms, {lifetime}
      from unnest(
               $1::text[], $2::bytea[], $3::uuid[], $5::uuid[], $6::bytea[], $7::bytea[], $8::bigint[], $9::bigint[], $10::bigint[],
               $11::bigint[], $12::text[], $13::text[], $14::bytea[], $15::bigint[],
               $16::int[]
           ) as a(
               tenant, key, nonce, request_id, fp_raw, fp_canonical, hold_ms, promised_ms, skew_ms, tombstone_ms, route, path, principal, settle_ms,
               recovery
           )
     cross join g
     where (select count(distinct s.asked) from seen s) < cardinality($3) and not exists (select from seen s where s.asked = a.nonce)
     order by a.tenant collate "C", a.key
    on conflict do nothing
    returning r.nonce, r.epoch, r.attempt, r.expires_at
)
select r.nonce as asked, r.epoch as made_epoch, r.attempt as made_attempt, r.expires_at as made_until, {nothing}
  from made r
union all
select r.asked, null, null, null,
       case when r.origin = '{origin}' and r.state = 1 and r.nonce = r.asked then 'won' else 'found' end, {columns}
  from seen r
