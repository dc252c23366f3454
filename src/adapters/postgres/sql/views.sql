select epoch, view,
       greatest(0, floor(extract(epoch from clock_timestamp() - stored_at) * 1000))::bigint as stored_ms
  from onceway.views order by epoch
