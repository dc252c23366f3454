-- due_at and held_at stay as they are: they are indexed, and an unchanged index keeps the update within its page.
update {records} r
   set state = 4, answer_status = $6, answer_headers = $7, answer_body = $8, answer_coding = $9, answer_length = $10, settled_at = clock_timestamp(),
       doubt_status = null
 where r.tenant = $1 and r.key = $2 and r.origin = '{origin}' and r.epoch = $3 and r.attempt = $4 and r.nonce = $5
   and r.state in (1, 2)
   and exists (select from onceway.gate where boot_started = pg_postmaster_start_time())
returning 1
