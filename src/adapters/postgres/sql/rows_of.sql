-- In the order of keys; of a replicated and an imported row of one key the later one. All its times are told as spans. The end of an
-- imported row counts its tombstone in.
select distinct on (r.tenant, r.key)
       r.tenant, r.key, r.route, r.path,
       ceil(extract(epoch from r.hold) * 1000)::bigint as hold_ms,
       greatest(0, ceil(extract(epoch from least(
           case when r.origin like '%!' and r.state <> 5 then r.due_at - r.tombstone else r.due_at end, '{never}'
       ) - clock_timestamp()) * 1000))::bigint as lives_ms,
       ceil(extract(epoch from r.tombstone) * 1000)::bigint as tombstone_ms,
       {columns}
  from onceway.records r
 where r.origin in ($1, $1 || '!')
   and ($2::text is null or (r.tenant, r.key) > ($2::text collate "C", $3::bytea))
 order by r.tenant, r.key, r.epoch desc, r.attempt desc, r.state desc, r.origin
 limit $4::bigint
