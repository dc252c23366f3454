update onceway.jobs
   set next_ms = case when forget_ms > {now} then least(forget_ms, {start} + $4::bigint) else {start} + $4::bigint end,
       runs = runs - $5::int, trouble = $6, nonce = null
 where tenant = $1 and key = $2 and nonce = $3 and state = 1
returning 1
