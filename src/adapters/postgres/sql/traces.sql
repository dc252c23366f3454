-- All rows of these keys; of a replicated and an imported one the later, or both if both were settled and are not one attempt.
select u.ord, {evidence}, {light}
  from unnest($1::text[], $2::bytea[]) with ordinality as u(tenant, key, ord)
  join onceway.records r on r.tenant = u.tenant and r.key = u.key
 where {audited}
 order by u.ord, r.origin
