select u.ord, {columns}
  from unnest($1::text[], $2::bytea[]) with ordinality as u(tenant, key, ord)
 cross join lateral (select * from onceway.records k where k.tenant = u.tenant and k.key = u.key) r
