-- One stretch of the own claims in the order in which they were made, and of these the ones that are still claimed. The order has ties,
-- and none of them may be left behind.
with stretch as materialized (
    select c.tenant, c.key, c.state, c.held_at
      from {records} c
     where c.held_at > (select coalesce(timestamptz 'epoch' + $1::bigint * interval '1 microsecond', '-infinity'))
       and c.held_at <= (select clock_timestamp() - $2::bigint * interval '1 millisecond')
     order by c.held_at
     fetch first ($3::bigint) rows with ties
)
select (select (extract(epoch from max(s.held_at)) * 1000000)::bigint from stretch s) as through,
       (select count(*) from stretch) as looked_at,
       r.tenant, r.key, r.route, r.path, {columns}
  from (values (1)) as one
  left join (
      stretch s join {records} r on s.state = 1 and r.tenant = s.tenant and r.key = s.key and r.origin = '{origin}' and r.state = 1
  ) on true
