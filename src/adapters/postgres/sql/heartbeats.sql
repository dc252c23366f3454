-- One statement, so one snapshot: of a subscription whose tables are all ready by then, the apply worker has committed everything up to the newest
-- heartbeat that is seen here. It takes a table over only at the place in the stream that it has reached itself.
select h.origin, h.seq, h.epoch, floor(extract(epoch from h.beat_at) * 1000)::bigint as beat_ms, c.copied
  from onceway.heartbeats h
 cross join (select array(
           select s.subname::text
             from pg_subscription s
             join pg_subscription_rel k on k.srsubid = s.oid
            where s.subdbid = (select oid from pg_database where datname = current_database())
            group by s.oid, s.subname
           -- Both leaves: one that brings heartbeats alone says nothing of records.
           having count(*) = 2 and bool_and(k.srsubstate = 'r')
              -- A promoted server may lack rows that its peer counts as applied, and does not send again: see `store reseed`.
              and case when pg_is_in_recovery() then true
                       else coalesce(obj_description(s.oid, 'pg_subscription')
                                     = 'timeline ' || left(pg_walfile_name(pg_current_wal_lsn()), 8), true) end) as copied) c
 order by h.origin
