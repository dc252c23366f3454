-- An entry that was renewed while this statement runs stays: the records are seen as they were when it began, the entry is looked at again.
with closed as (
    delete from onceway.doubts d
     where d.since < statement_timestamp() and not exists (
        select from onceway.records o
         where o.tenant = d.tenant and o.key = d.key and o.state in (1, 2) and not {outdone} and {unanswered}
     )
    returning 1
)
select (select count(*) from onceway.doubts) - (select count(*) from closed) as listed
