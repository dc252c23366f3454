-- All rows of these keys, of a replicated and an imported one the later. When an imported row was claimed is not known: it holds only
-- what its giver told as spans.
select u.ord, r.route, r.path, {light}, r.origin like '%!' as imported,
       case when r.origin not like '%!' then floor(extract(epoch from r.held_at) * 1000)::bigint end as claimed_ms,
       floor(extract(epoch from r.settled_at) * 1000)::bigint as settled_at_ms
  from unnest($1::text[], $2::bytea[]) with ordinality as u(tenant, key, ord)
  join onceway.records o on o.tenant = u.tenant and o.key = u.key
  join onceway.records r on r.tenant = o.tenant and r.key = o.key and r.origin = o.origin
 where not {outdone}
 order by u.ord, r.origin
