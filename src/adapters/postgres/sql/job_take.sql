with d as materialized (
    select tenant, key from onceway.jobs
     where state = 1 and next_at <= clock_timestamp()
     order by next_at
     limit $2
       for update skip locked
)
update onceway.jobs j
   set runs = j.runs + 1, nonce = $1, next_at = clock_timestamp() + $3::bigint * interval '1 millisecond'
  from d
 where j.tenant = d.tenant and j.key = d.key
returning j.tenant, j.key, j.request_id, j.runs, j.forget_at <= clock_timestamp() as over, j.sealed, j.request
