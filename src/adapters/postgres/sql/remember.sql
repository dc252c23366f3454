-- A remembered heartbeat never goes back, whichever gateway of the region writes last. Who measured no lag leaves the known one. Sorted, so that two writers cannot deadlock.
insert into onceway.peer_memory as m (origin, applied, lag_ms, imported, remembered_at)
select u.origin, u.applied, u.lag_ms, u.imported, clock_timestamp()
  from unnest($1::text[], $2::bigint[], $3::bigint[], $4::bigint[]) as u(origin, applied, lag_ms, imported)
 order by u.origin
on conflict (origin) do update
   set applied = greatest(m.applied, excluded.applied), lag_ms = coalesce(excluded.lag_ms, m.lag_ms),
       imported = greatest(m.imported, excluded.imported), remembered_at = excluded.remembered_at
