-- Why no record was written in the place of others: a statement of its own, because the snapshot of that one is older than a concurrent repeat
-- of it. What an earlier call wrote stands, whatever the gate says by now.
select exists (
           select from {records} r
            where r.tenant = $1 and r.key = $2 and r.origin = '{origin}' and r.nonce = $4 and r.state = $5
              and r.answer_status is not distinct from $6
       ) as stands,
       exists (select from onceway.gate where version = $3 and boot_started = pg_postmaster_start_time()) as open
