select count(*) filter (where state = 1) as waiting, count(*) filter (where state = 2) as dead,
       coalesce(floor(extract(epoch from clock_timestamp() - min(accepted_at) filter (where state = 1)) * 1000), 0)::bigint as oldest_ms
  from onceway.jobs
