-- The gate's version is compared in the statement that writes, as in a claim: once a gate has adopted a newer view, no escrow of an older
-- one can slip in. A higher token takes the place of a lower one, and of its answer. The row's life counts from the clock's date: nothing is
-- written while that is before the earliest possible one.
with g as materialized (
    select from onceway.hold_gate($1) where extract(epoch from clock_timestamp()) * 1000 >= $18::bigint
)
insert into onceway.escrows as e (
    tenant, key, origin, epoch, attempt, nonce, fp_raw, fp_canonical, request_id, hold, settle_time, promised, skew, tombstone, route, path,
    principal, stored_at, due_at, look_at
)
select $2, $3, $4, $5, $6, $7, $8, $9, $10, $11::bigint * interval '1 millisecond', $19::bigint * interval '1 millisecond',
       $12::bigint * interval '1 millisecond',
       $13::bigint * interval '1 millisecond', $14::bigint * interval '1 millisecond', $15, $16, $17, clock_timestamp(),
       coalesce(clock_timestamp() + ($12::bigint + $13::bigint) * interval '1 millisecond', '{never}'),
       clock_timestamp()
  from g
on conflict (tenant, key, origin) do update
   set epoch = excluded.epoch, attempt = excluded.attempt, nonce = excluded.nonce, fp_raw = excluded.fp_raw,
       fp_canonical = excluded.fp_canonical, request_id = excluded.request_id, hold = excluded.hold,
       settle_time = excluded.settle_time, promised = excluded.promised,
       skew = excluded.skew, tombstone = excluded.tombstone, route = excluded.route, path = excluded.path,
       principal = excluded.principal, answer_status = null, answer_headers = null, answer_body = null, answer_coding = 0,
       answer_length = null, answered_at = null, stored_at = excluded.stored_at, due_at = excluded.due_at, look_at = excluded.look_at
 where (e.epoch, e.attempt) < (excluded.epoch, excluded.attempt)
returning 1
