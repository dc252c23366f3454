-- Why a job was not discarded.
select exists (select from onceway.gate where boot_started = pg_postmaster_start_time()) as open,
       exists (select from onceway.jobs where tenant = $1 and key = $2) as there
