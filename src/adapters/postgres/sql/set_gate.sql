-- The gate first, which waits for every claim that holds it (0001_schema.sql); so the heartbeat that
-- follows in the same transaction is committed after the last of them. The epoch never goes back.
with g as (
    update onceway.gate
       set version = version + 1, epoch = $2, view = $3, since = $4, pending = $5, waivers = $6
     where version = $1 and origin = '{origin}' and epoch <= $2 and boot_started = pg_postmaster_start_time()
    returning epoch
), kept as (
    insert into onceway.views (epoch, view, stored_ms) select g.epoch, $3, {start} from g on conflict (epoch) do nothing
), beaten as (
    update {heartbeats} h
       set seq = h.seq + 1, epoch = g.epoch, beat_at = clock_timestamp()
      from g
     where h.origin = '{origin}'
)
select 1 from g
