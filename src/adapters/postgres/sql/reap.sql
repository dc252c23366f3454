-- One batch of reaping (see the port): $1 rows, and no tombstone of an epoch from $2 on. The row locks are skipped where somebody else holds one: another gateway's batch, or a settlement.
-- The greatest token of what was reaped stays.
with due as materialized (
    select r.tenant, r.key, r.state, r.epoch, r.attempt, r.held_ms + r.hold_ms <= {now} as over
      from {records} r
     where r.due_ms <= {now}
       and exists (select from onceway.hold_gate(null))
     order by r.due_ms
     limit $1::bigint
       for update of r skip locked
), seen as (
    select d.*,
           exists (
               select from onceway.records o
                where o.tenant = d.tenant and o.key = d.key and o.origin <> '{origin}' and o.state in (1, 2, 3) and not {outdone}
           ) as masks,
           -- Of a released row nothing is to be hidden but a doubt: two released rows would wait for one another for ever.
           exists (
               select from onceway.records o
                where o.tenant = d.tenant and o.key = d.key and o.origin <> '{origin}' and o.state in (1, 2) and not {outdone}
           ) as covers,
           exists (select from onceway.jobs j where j.tenant = d.tenant and j.key = d.key) as waits,
           -- An answer of another origin that is not above this row is replayed still: a tombstone here would hide it.
           exists (
               select from onceway.records o
                where o.tenant = d.tenant and o.key = d.key and o.origin <> '{origin}' and o.state = 4 and not {outdone}
                  and (o.epoch, o.attempt) <= (d.epoch, d.attempt)
           ) as hides,
           -- How long a final row of another origin above this one is remembered, its tombstone included.
           (
               select max({ends} + o.tombstone_ms) from onceway.records o
                where o.tenant = d.tenant and o.key = d.key and o.origin <> '{origin}' and o.state in (4, 5) and not {outdone}
                  and (o.state = 5 or (o.epoch, o.attempt) > (d.epoch, d.attempt))
           ) as final_until
      from due d
), judged as (
    select s.tenant, s.key, s.final_until,
           case
               when s.state = 5 and not s.masks and ($2::bigint is null or s.epoch < $2::bigint) then 'forget'
               when s.state = 5 then 'keep'
               when s.state = 4 then 'expire'
               when s.waits or s.hides then 'keep'
               when s.final_until is not null and (s.state in (2, 3) or s.over) then 'expire'
               when s.state = 3 and not s.covers then 'expire'
               else 'keep'
           end as fate
      from seen s
), expired as (
    update {records} r
       set state = 5, doubt_status = null, answer_status = null, answer_headers = null, answer_body = null,
           answer_coding = 0, answer_length = null, due_ms = greatest(r.due_ms + r.tombstone_ms, j.final_until)
      from judged j
     where j.fate = 'expire' and r.tenant = j.tenant and r.key = j.key and r.origin = '{origin}'
    returning r.epoch, r.attempt
), kept as (
    update {records} r
       set due_ms = {now} + 600000
      from judged j
     where j.fate = 'keep' and r.tenant = j.tenant and r.key = j.key and r.origin = '{origin}'
    returning 1
), forgotten as (
    delete from {records} r using judged j
     where j.fate = 'forget' and r.tenant = j.tenant and r.key = j.key and r.origin = '{origin}'
    returning r.epoch, r.attempt
), raised as (
    update onceway.forgotten f
       set epoch = t.epoch, attempt = t.attempt
      from (
          select * from (select * from expired union all select * from forgotten) as tokens order by epoch desc, attempt desc limit 1
      ) as t
     where (f.epoch, f.attempt) < (t.epoch, t.attempt)
)
select (select count(*) from expired) as expired, (select count(*) from kept) as kept,
       (select count(*) from forgotten) as forgotten
