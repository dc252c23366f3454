-- What is on the list and still open; a claim that runs again is not in doubt.
select r.tenant, r.key, floor(extract(epoch from d.since) * 1000)::bigint as since_ms, r.route, r.path, {columns}
  from onceway.doubts d
  join {records} r on r.tenant = d.tenant and r.key = d.key and r.origin = '{origin}'
 where ($1::text is null or (d.tenant, d.key) > ($1::text collate "C", $2::bytea))
   and (r.state = 2 or (r.state = 1 and r.held_at + r.hold <= clock_timestamp()))
 order by d.tenant, d.key
 limit $3::bigint
