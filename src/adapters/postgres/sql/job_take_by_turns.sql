-- One look for the jobs of tenants behind $5 that are not in $4: of each the one that is due longest. From tenant to tenant by the index (a loose
-- index scan), as far as needed, so that neither what waits of those in $4 is read nor everybody's first. The order names the tenant, so that
-- no index over all tenants' jobs serves it. Locked are those that are taken only; what another gateway took meanwhile is not due any more when its lock is had.
with recursive walk as (
    (select tenant, 1 as step from onceway.jobs where state = 1 and tenant > $5 order by tenant limit 1)
    union all
    select (select j.tenant from onceway.jobs j where j.state = 1 and j.tenant > w.tenant order by j.tenant limit 1), w.step + 1
      from walk w where w.tenant is not null and w.step < 10000
), first as materialized (
    select w.tenant, f.key
      from walk w
     cross join lateral (
           select j.key from onceway.jobs j
            where j.state = 1 and j.tenant between w.tenant and w.tenant and j.next_ms <= {now}
            order by j.tenant, j.next_ms
            limit 1
           ) f
     where w.tenant <> all ($4::text[])
     limit $2
), d as materialized (
    select j.tenant, j.key
      from first f
      join onceway.jobs j on j.tenant = f.tenant and j.key = f.key
     where j.state = 1 and j.next_ms <= {now}
       for update of j skip locked
)
