-- What a taker does with the jobs `d` that it chose and locked, whichever way.
update onceway.jobs j
   set runs = j.runs + 1, nonce = $1, next_at = clock_timestamp() + $3::bigint * interval '1 millisecond'
  from d
 where j.tenant = d.tenant and j.key = d.key
returning j.tenant, j.key, j.request_id, j.runs, j.sealed, j.request,
          $4::bigint is not null
          and j.forget_at <= least(clock_timestamp(), timestamptz 'epoch' + $4::bigint * interval '1 millisecond') as over
