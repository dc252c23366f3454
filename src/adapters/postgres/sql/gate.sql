-- The timeline of the WAL that is written now: after a promotion the control file keeps the one of
-- before until the next checkpoint.
select g.origin, g.version, g.epoch, g.boot_system, g.boot_timeline,
       (extract(epoch from g.boot_started) * 1000000)::bigint as boot_started,
       s.system_identifier,
       case when pg_is_in_recovery() then (select timeline_id from pg_control_checkpoint())
            else ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::integer end as timeline_id,
       (extract(epoch from pg_postmaster_start_time()) * 1000000)::bigint as started,
       g.view, g.since, g.pending, g.waivers,
       m.schema_version,
       m.gateways_from
  from onceway.gate g, onceway.meta m, pg_control_system() s
