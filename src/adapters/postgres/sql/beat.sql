with g as materialized (
    select epoch from onceway.gate where boot_started = pg_postmaster_start_time() for share
)
update {heartbeats} h
   set seq = h.seq + 1, epoch = g.epoch, beat_at = clock_timestamp()
  from g
 where h.origin = '{origin}'
returning h.seq, floor(extract(epoch from h.beat_at) * 1000)::bigint as beat_ms
