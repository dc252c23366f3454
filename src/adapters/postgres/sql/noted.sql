select greatest(0, floor(extract(epoch from clock_timestamp() - j.at) * 1000))::bigint as ago_ms
  from onceway.journal j
 where j.kind = $1
 order by j.id desc
 limit 1
