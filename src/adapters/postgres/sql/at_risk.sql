-- The same as comb.sql, of the records that ran at risk: few, and found by an index.
with stretch as materialized (
    select o.tenant, o.key, o.origin
      from onceway.records o
     where o.risk <> '{}' and (o.tenant, o.key) > ($1::text collate "C", $2::bytea)
     order by o.tenant, o.key
     fetch first ($3::bigint) rows with ties
), shared as (
    select distinct s.tenant, s.key
      from stretch s
     where exists (
         select from onceway.records o
          where o.tenant = s.tenant and o.key = s.key and rtrim(o.origin, '!') <> rtrim(s.origin, '!')
     )
)
