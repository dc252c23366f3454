-- An entry that was renewed while this statement runs stays: it has another place by then.
with closed as (
    delete from onceway.doubts d
     using (
           select l.ctid as place from onceway.doubts l
            where not exists (
                select from onceway.records o
                 where o.tenant = l.tenant and o.key = l.key and o.state in (1, 2) and not {outdone} and {unanswered}
            )
           ) as gone
     where d.ctid = gone.place
    returning 1
)
select (select count(*) from onceway.doubts) - (select count(*) from closed) as listed
