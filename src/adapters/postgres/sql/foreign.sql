-- One stretch of other origins' rows: the keys of those that are open and that nothing answers for, and where the stretch ended. A key's
-- rows are not parted.
with stretch as materialized (
    select o.tenant, o.key, o.origin, o.state, o.epoch, o.attempt
      from onceway.records o
     where o.origin <> '{origin}' and (o.tenant, o.key) > ($1::text collate "C", $2::bytea)
     order by o.tenant, o.key
     fetch first ($3::bigint) rows with ties
)
select distinct o.tenant, o.key, false as through, 0::bigint as looked_at
  from stretch o
 where o.state in (1, 2) and not {outdone} and {unanswered}
union all
(
    select s.tenant, s.key, true, (select count(*) from stretch)
      from stretch s
     order by s.tenant desc, s.key desc
     limit 1
)
