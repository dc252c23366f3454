-- The counter moves on if it still stands where this gateway saw it last ($1): so no two gateways add the same second. $2 is what passed since,
-- by the gateway's boot clock. One heartbeat adds no more than the one before allowed, and allows $3 to the next one.
with g as materialized (
    select epoch from onceway.hold_gate(null)
), was as materialized (
    select w.observed_ms, w.step_ms from {heartbeats} w where exists (select from g) for update
)
update {heartbeats} h
   set seq = h.seq + 1, epoch = g.epoch, beat_at = clock_timestamp(),
       observed_ms = was.observed_ms + case when was.observed_ms = $1::bigint then least($2::bigint, was.step_ms) else 0 end,
       step_ms = coalesce($3::bigint, was.step_ms)
  from g, was
 where h.origin = '{origin}'
returning h.seq, floor(extract(epoch from h.beat_at) * 1000)::bigint as beat_ms, h.observed_ms, coalesce(was.observed_ms = $1::bigint, false) as counted
