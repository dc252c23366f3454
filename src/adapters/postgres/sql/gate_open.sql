select exists (select from onceway.gate where boot_started = pg_postmaster_start_time()) as open
