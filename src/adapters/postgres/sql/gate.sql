select g.origin, g.version, g.epoch, g.boot_system, g.boot_timeline,
       (extract(epoch from g.boot_started) * 1000000)::bigint as boot_started,
       s.system_identifier, c.timeline_id,
       (extract(epoch from pg_postmaster_start_time()) * 1000000)::bigint as started,
       g.view, g.since, g.pending, g.waivers,
       m.schema_version,
       m.gateways_from
  from onceway.gate g, onceway.meta m, pg_control_system() s, pg_control_checkpoint() c
