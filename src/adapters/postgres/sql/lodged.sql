-- Why nothing was lodged: a statement of its own, because the snapshot of that one is older than a concurrent repeat of it. A claim that
-- stands already stands, whatever the gate says by now.
select exists (
           select from onceway.escrows where tenant = $2 and key = $3 and origin = $4 and epoch = $5 and attempt = $6 and nonce = $7
       ) as stands,
       exists (select from onceway.gate where version = $1 and boot_started = pg_postmaster_start_time()) as open
