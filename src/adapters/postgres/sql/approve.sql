update onceway.gate
   set version = version + 1, boot_system = $2, boot_timeline = $3, boot_started = pg_postmaster_start_time()
 where version = $1 and origin = '{origin}'
   and $2 = (select system_identifier from pg_control_system())
   and $3 = (select timeline_id from pg_control_checkpoint())
   and $4 = (extract(epoch from pg_postmaster_start_time()) * 1000000)::bigint
returning 1
