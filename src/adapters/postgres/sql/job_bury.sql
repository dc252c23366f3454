update onceway.jobs
   set state = 2, trouble = $4, nonce = null
 where tenant = $1 and key = $2 and nonce = $3 and state = 1
returning 1
