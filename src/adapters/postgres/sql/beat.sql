with g as materialized (
    select epoch from onceway.hold_gate(null)
)
update {heartbeats} h
   set seq = h.seq + 1, epoch = g.epoch, beat_at = clock_timestamp()
  from g
 where h.origin = '{origin}'
returning h.seq, floor(extract(epoch from h.beat_at) * 1000)::bigint as beat_ms
