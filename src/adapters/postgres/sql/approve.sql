update onceway.gate
   set version = version + 1, boot_system = $2, boot_timeline = $3, boot_started = pg_postmaster_start_time()
 where version = $1 and origin = '{origin}'
   and $2 = (select system_identifier from pg_control_system())
   and $3 = case when pg_is_in_recovery() then (select timeline_id from pg_control_checkpoint())
            else ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::integer end
   and $4 = (extract(epoch from pg_postmaster_start_time()) * 1000000)::bigint
returning 1
