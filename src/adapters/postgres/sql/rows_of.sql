-- In the order of keys; of a replicated and an imported row of one key the later one. All its times are told as spans. The end of an
-- imported row counts its tombstone in.
select distinct on (r.tenant, r.key)
       r.tenant, r.key, r.route, r.path,
       r.hold_ms,
       greatest(0, {r_ends} - case when r.origin like '%!' and r.state <> 5 then r.tombstone_ms else 0 end - {now}) as lives_ms,
       r.tombstone_ms,
       {columns}
  from onceway.records r
 where r.origin in ($1, $1 || '!')
   and ($2::text is null or (r.tenant, r.key) > ($2::text collate "C", $3::bytea))
 order by r.tenant, r.key, r.epoch desc, r.attempt desc, r.state desc, r.origin
 limit $4::bigint
