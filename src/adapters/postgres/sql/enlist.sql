-- Sorted, so that two gateways cannot deadlock.
insert into onceway.doubts (tenant, key)
select u.tenant, u.key from unnest($1::text[], $2::bytea[]) as u(tenant, key) order by u.tenant collate "C", u.key
on conflict do nothing
