-- Answers of many attempts. Of one that is not returned nothing was written: it lost, the boot is not approved, or another origin's answer may
-- be here. Nested loops lock in the order of the keys, so that two batches cannot deadlock. The plan is made once, perhaps over an
-- empty leaf, and must not read all of it: so the origin is not asked, as the leaf holds no other, conditions that are always true make few
-- rows of many, and `offset 0` keeps a look at one key from becoming a join, which would read the whole index and compare.
-- due_ms and held_ms stay as they are: they are indexed, and an unchanged index keeps the update within its page.
with told as materialized (
    select u.*
      from unnest(
               $1::text[], $2::bytea[], $3::bigint[], $4::int[], $5::uuid[], $6::smallint[], $7::bytea[], $8::bytea[], $9::smallint[],
               $10::int[]
           ) with ordinality as u(tenant, key, epoch, attempt, nonce, status, headers, body, coding, length, ord)
     where u.ord > 0 and u.epoch > 0 and u.attempt > 0
     order by u.tenant collate "C", u.key
), g as materialized (
    select from onceway.hold_gate(null)
)
update {records} r
   set state = 4, settled_at = clock_timestamp(), doubt_status = null, answer_status = t.status, answer_headers = t.headers,
       answer_body = t.body, answer_coding = t.coding, answer_length = t.length
  from told t
 where r.tenant = t.tenant and r.key = t.key and r.epoch = t.epoch and r.attempt = t.attempt and r.nonce = t.nonce
   and r.state in (1, 2)
   and exists (select from g)
   and not exists (
       select from onceway.records o where o.tenant = t.tenant and o.key = t.key and o.origin <> '{origin}' and o.state = 4
       offset 0
   )
returning t.ord
