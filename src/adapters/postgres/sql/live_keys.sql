-- One stretch by the primary key: a tenant may have more than can be counted in one statement's time.
with stretch as materialized (
    select r.key from {records} r where r.tenant = $1 and r.key > $2 order by r.key limit $3::bigint
)
select (select count(*) from stretch) as keys, (select s.key from stretch s offset $3::bigint - 1 limit 1) as through
