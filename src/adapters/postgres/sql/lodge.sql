-- The gate's version is compared in the statement that writes, as in a claim: once a gate has adopted a newer view, no escrow of an older
-- one can slip in. A higher token takes the place of a lower one, and of its answer.
with g as materialized (
    select from onceway.hold_gate($1)
)
insert into onceway.escrows as e (
    tenant, key, origin, epoch, attempt, nonce, fp_raw, fp_canonical, request_id, hold_ms, settle_ms, promised_ms, skew_ms, tombstone_ms, route,
    path, principal, recovery, stored_at, expires_at, stored_ms, due_ms, look_ms
)
select $2, $3, $4, $5, $6, $7, $8, $9, $10, $11::bigint, $18::bigint, $12::bigint, $13::bigint, $14::bigint, $15, $16, $17, $19,
       clock_timestamp(), coalesce(clock_timestamp() + $12::bigint * interval '1 millisecond', '{never}'),
       {start}, coalesce({start} + $12::bigint + $13::bigint, {never_ms}), {now}
  from g
on conflict (tenant, key, origin) do update
   set epoch = excluded.epoch, attempt = excluded.attempt, nonce = excluded.nonce, fp_raw = excluded.fp_raw,
       fp_canonical = excluded.fp_canonical, request_id = excluded.request_id, hold_ms = excluded.hold_ms,
       settle_ms = excluded.settle_ms, promised_ms = excluded.promised_ms,
       skew_ms = excluded.skew_ms, tombstone_ms = excluded.tombstone_ms, route = excluded.route, path = excluded.path,
       principal = excluded.principal, recovery = excluded.recovery, answer_status = null, answer_headers = null, answer_body = null, answer_coding = 0,
       answer_length = null, answered_at = null, stored_at = excluded.stored_at, expires_at = excluded.expires_at,
       stored_ms = excluded.stored_ms, due_ms = excluded.due_ms, look_ms = excluded.look_ms
 where (e.epoch, e.attempt) < (excluded.epoch, excluded.attempt)
returning 1
