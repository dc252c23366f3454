-- What a taker does with the jobs `d` that it chose and locked, whichever way.
update onceway.jobs j
   set runs = j.runs + 1, nonce = $1, next_ms = {start} + $3::bigint
  from d
 where j.tenant = d.tenant and j.key = d.key
returning j.tenant, j.key, j.request_id, j.runs, j.sealed, j.request, j.forget_ms <= {now} as over
