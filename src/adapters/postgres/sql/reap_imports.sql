-- Nobody else forgets what a survivor handed over: it goes when its tombstone would.
with due as materialized (
    select o.tenant, o.key, o.origin from onceway.records_imported o
     where o.due_at <= (select clock_timestamp())
     order by o.due_at
     limit $1::bigint
       for update of o skip locked
)
delete from onceway.records_imported o using due d
 where o.tenant = d.tenant and o.key = d.key and o.origin = d.origin
returning 1
