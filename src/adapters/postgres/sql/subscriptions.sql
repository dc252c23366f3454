-- A worker without relid applies the stream; those with one copy a table.
select s.subname::text as name, coalesce(t.ready, false) as ready,
       exists (select from pg_stat_subscription w where w.subid = s.oid and w.relid is null and w.pid is not null) as streaming
  from pg_subscription s
  left join lateral (select bool_and(k.srsubstate = 'r') as ready from pg_subscription_rel k where k.srsubid = s.oid) t on true
 where s.subdbid = (select oid from pg_database where datname = current_database())
 order by s.subname
