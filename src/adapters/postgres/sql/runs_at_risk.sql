-- Own rows that a window alone allowed, in the order of keys.
select r.tenant, r.key, r.route, r.path, {columns}
  from {records} r
 where r.risk <> '{}' and ($1::text is null or (r.tenant, r.key) > ($1::text collate "C", $2::bytea))
 order by r.tenant, r.key
 limit $3::bigint
