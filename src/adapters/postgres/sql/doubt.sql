update {records} r
   set state = 2, doubt_status = $6
 where r.tenant = $1 and r.key = $2 and r.origin = '{origin}' and r.epoch = $3 and r.attempt = $4 and r.nonce = $5
   and r.state = 1
   and exists (select from onceway.gate where boot_started = pg_postmaster_start_time())
returning 1
