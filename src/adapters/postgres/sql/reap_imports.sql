-- One batch of imported rows that are due (see the port). Nobody else forgets what a survivor handed
-- over, and nothing is forgotten under a boot that nobody approved. A row that must stay is looked at
-- again later. Bounds stand in scalar sub-selects, because an index cannot be searched with a volatile function.
with due as materialized (
    select i.tenant, i.key, i.origin, i.state, i.epoch, i.attempt from onceway.records_imported i
     where i.due_ms <= {now}
       and exists (select from onceway.hold_gate(null))
     order by i.due_ms
     limit $1::bigint
       for update of i skip locked
), judged as (
    select d.tenant, d.key, d.origin,
           case
               -- The origin's own row says more.
               when {due_outdone} then true
               when d.state in (4, 5) then not exists (
                   select from onceway.records o
                    where o.tenant = d.tenant and o.key = d.key and rtrim(o.origin, '!') <> rtrim(d.origin, '!')
                      and o.state in (1, 2, 3) and not {outdone}
               )
               when d.state = 3 then not exists (
                   select from onceway.records o
                    where o.tenant = d.tenant and o.key = d.key and rtrim(o.origin, '!') <> rtrim(d.origin, '!')
                      and o.state in (1, 2) and not {outdone}
               )
               else exists (
                   select from onceway.records o
                    where o.tenant = d.tenant and o.key = d.key and rtrim(o.origin, '!') <> rtrim(d.origin, '!')
                      and not {outdone} and (o.state in (4, 5) or (o.state = 3 and {due_superseded}))
               )
           end as goes
      from due d
), later as (
    update onceway.records_imported i
       set due_ms = {now} + 600000
      from judged j
     where not j.goes and i.tenant = j.tenant and i.key = j.key and i.origin = j.origin
)
delete from onceway.records_imported i using judged j
 where j.goes and i.tenant = j.tenant and i.key = j.key and i.origin = j.origin
returning 1
