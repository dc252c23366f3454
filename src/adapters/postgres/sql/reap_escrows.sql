-- An escrow is not needed once its origin's record of at least its token is applied here, nor past
-- the tombstone of its key, as far as that may be forgotten: its home refuses the key until then. Nothing is forgotten under a boot that nobody approved.
-- A row that must stay is looked at later and later, so that a stalled link does not have all of
-- them read again and again. Bounds stand in scalar sub-selects, because an index cannot be searched
-- with a volatile function.
with due as materialized (
    select e.tenant, e.key, e.origin, e.epoch, e.attempt, e.due_at + e.tombstone as ends, e.stored_at
      from onceway.escrows e
     where e.look_at <= (select clock_timestamp())
       and exists (select from onceway.hold_gate(null))
     order by e.look_at
     limit $2::bigint
       for update of e skip locked
), judged as (
    select d.*,
           d.ends <= least(clock_timestamp(), timestamptz 'epoch' + $1::bigint * interval '1 millisecond') or exists (
               select from onceway.records o
                where o.tenant = d.tenant and o.key = d.key and o.origin in (d.origin, d.origin || '!')
                  and (o.epoch, o.attempt) >= (d.epoch, d.attempt)
           ) as done
      from due d
), off as (
    delete from onceway.escrows e using judged j
     where j.done and e.tenant = j.tenant and e.key = j.key and e.origin = j.origin
    returning 1
), later as (
    update onceway.escrows e
       set look_at = least(
               greatest(j.ends, clock_timestamp()),
               clock_timestamp() + least(interval '1 minute', greatest(interval '1 second', clock_timestamp() - j.stored_at))
           )
      from judged j
     where not j.done and e.tenant = j.tenant and e.key = j.key and e.origin = j.origin
)
select (select count(*) from off) as gone
