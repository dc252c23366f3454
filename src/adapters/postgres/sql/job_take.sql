-- Bounds stand in scalar sub-selects, because an index cannot be searched with a volatile function: else each look would read all jobs
-- that wait for a later run.
with d as materialized (
    select tenant, key from onceway.jobs
     where state = 1 and next_at <= (select clock_timestamp())
     order by next_at
     limit $2
       for update skip locked
)
update onceway.jobs j
   set runs = j.runs + 1, nonce = $1, next_at = clock_timestamp() + $3::bigint * interval '1 millisecond'
  from d
 where j.tenant = d.tenant and j.key = d.key
returning j.tenant, j.key, j.request_id, j.runs, j.sealed, j.request,
          $4::bigint is not null
          and j.forget_at <= least(clock_timestamp(), timestamptz 'epoch' + $4::bigint * interval '1 millisecond') as over
