-- First claims of many keys, all under the gate's version $1: what stands of each key, and the rows that were made. Of a key that is not among
-- them nothing was written: another claim was faster, or the gate has moved. Sorted, so that two batches cannot deadlock.
-- The plan is made once, perhaps over an empty leaf, and must not read all of it: conditions that are always true make few rows of many, and
-- `offset 0` keeps a look at one key from becoming a join, which would read the whole index and compare.
with asked as materialized (
    select u.*
      from unnest(
               $2::bigint[], $3::text[], $4::bytea[], $5::uuid[], $6::uuid[], $7::bytea[], $8::bytea[], $9::bigint[], $10::bigint[],
               $11::bigint[], $12::bigint[], $13::text[], $14::text[], $15::bytea[]
           ) with ordinality as u(
               gate, tenant, key, nonce, request_id, fp_raw, fp_canonical, hold_ms, promised_ms, skew_ms, tombstone_ms, route, path,
               principal, ord
           )
     where u.ord > 0 and u.gate > 0 and u.hold_ms >= 0
), seen as materialized (
    select a.ord, a.nonce as asked_nonce, r.*
      from asked a
     cross join lateral (select s.* from onceway.records s where s.tenant = a.tenant and s.key = a.key offset 0) r
), g as materialized (
    select epoch from onceway.hold_gate($1)
), made as (
    insert into {records} as r (
        tenant, key, origin, state, epoch, attempt, nonce, fp_raw, fp_canonical, request_id, held_at, hold, {lifetime_columns}
    )
    select a.tenant, a.key, '{origin}', 1, g.epoch, {first_attempt}, a.nonce, a.fp_raw, a.fp_canonical, a.request_id,
           clock_timestamp(), a.hold_ms * interval '1 millisecond', {lifetime}
      from asked a
     cross join g
     where a.gate = $1 and not exists (select from seen s where s.ord = a.ord)
     order by a.tenant collate "C", a.key
    on conflict do nothing
    returning r.*
)
select a.ord, 'won' as verdict, {columns} from made r join asked a on a.nonce = r.nonce
union all
select r.ord, case when r.origin = '{origin}' and r.state = 1 and r.nonce = r.asked_nonce then 'won' else 'found' end, {columns} from seen r
