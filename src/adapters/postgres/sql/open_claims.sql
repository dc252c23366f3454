-- One stretch of the own claims in the order in which they were made, and of these the ones that are still claimed. The order has ties,
-- and none of them may be left behind.
with stretch as materialized (
    select c.tenant, c.key, c.state, c.held_ms
      from {records} c
     where c.held_ms > coalesce($1::bigint, -1)
       and c.held_ms <= {now} - $2::bigint
     order by c.held_ms
     fetch first ($3::bigint) rows with ties
)
select (select max(s.held_ms) from stretch s) as through,
       (select count(*) from stretch) as looked_at,
       r.tenant, r.key, r.route, r.path, {columns}
  from (values (1)) as one
  left join (
      stretch s join {records} r on s.state = 1 and r.tenant = s.tenant and r.key = s.key and r.origin = '{origin}' and r.state = 1
  ) on true
