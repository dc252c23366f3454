delete from onceway.doubts d
 using unnest($1::text[], $2::bytea[]) as u(tenant, key)
 where d.tenant = u.tenant and d.key = u.key and not exists (
     select from {records} r where r.tenant = d.tenant and r.key = d.key and r.origin = '{origin}' and r.state in (1, 2)
 )
