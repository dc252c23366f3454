-- An escrow is not needed once its origin's record of at least its token is applied here, nor past
-- the tombstone of its key, as far as that may be forgotten: its home refuses the key until then. Nothing is forgotten under a boot that nobody approved.
-- A row that must stay is looked at later and later, so that a stalled link does not have all of
-- them read again and again. Bounds stand in scalar sub-selects, because an index cannot be searched
-- with a volatile function.
with due as materialized (
    select e.tenant, e.key, e.origin, e.epoch, e.attempt, e.due_ms + e.tombstone_ms as ends, e.stored_ms
      from onceway.escrows e
     where e.look_ms <= {now}
       and exists (select from onceway.hold_gate(null))
     order by e.look_ms
     limit $1::bigint
       for update of e skip locked
), judged as (
    select d.*,
           d.ends <= {now} or exists (
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
       set look_ms = least(greatest(j.ends, {now}), {now} + least(60000, greatest(1000, {now} - j.stored_ms)))
      from judged j
     where not j.done and e.tenant = j.tenant and e.key = j.key and e.origin = j.origin
)
select (select count(*) from off) as gone
