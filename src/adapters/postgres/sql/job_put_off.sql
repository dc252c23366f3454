update onceway.jobs
   set next_at = case
           when forget_at > clock_timestamp() then least(forget_at, clock_timestamp() + $4::bigint * interval '1 millisecond')
           else clock_timestamp() + $4::bigint * interval '1 millisecond'
       end,
       runs = runs - $5::int, trouble = $6, nonce = null
 where tenant = $1 and key = $2 and nonce = $3 and state = 1
returning 1
