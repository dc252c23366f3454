select j.tenant, j.key, j.request_id, j.state, j.runs, j.sealed, j.request is not null as kept, j.trouble,
floor(extract(epoch from j.accepted_at) * 1000)::bigint as accepted_ms,
floor(extract(epoch from clock_timestamp()) * 1000)::bigint + j.next_ms - {now} as next_ms,
floor(extract(epoch from clock_timestamp()) * 1000)::bigint + j.forget_ms - {now} as forget_ms
  from onceway.jobs j where $1::smallint is null or j.state = $1
 order by j.accepted_at, j.tenant, j.key limit $2
