-- Of the whole server: whoever made a slot, what it keeps is on our disk. A lost one has no place to read on from.
select slot_name::text as name, coalesce(wal_status = 'lost', false) as lost,
       greatest(coalesce(pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn), 0), 0)::bigint as retained
  from pg_replication_slots
 order by slot_name
