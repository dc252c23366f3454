-- One stretch of all records, in the order of keys after $1 and $2, at most $3 of them or few more, and where it ended. Only the primary
-- key is read, but for keys of more than one row: these come with their rows.
with stretch as materialized (
    select o.tenant, o.key, o.origin
      from onceway.records o
     where (o.tenant, o.key) > ($1::text collate "C", $2::bytea)
     order by o.tenant, o.key
     fetch first ($3::bigint) rows with ties
), shared as (
    select s.tenant, s.key
      from stretch s
     group by s.tenant, s.key
    having count(*) > 1
)
