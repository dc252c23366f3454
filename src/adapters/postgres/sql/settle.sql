-- An answer of another origin that is here already stays the answer of the key: it may have been replayed. Then the own one is kept in
-- the journal only, beside the other. A row of the same nonce is the same attempt and no double.
-- due_ms and held_ms stay as they are: they are indexed, and an unchanged index keeps the update within its page.
with other as materialized (
    select o.origin, o.epoch, o.attempt, o.nonce, o.over, o.risk, o.answer_status, o.answer_headers, o.answer_body, o.answer_coding, o.answer_length
      from onceway.records o
     where o.tenant = $1 and o.key = $2 and o.origin <> '{origin}' and o.state = 4 and not {outdone}
     order by o.epoch desc, o.attempt desc, o.origin
     limit 1
), settled as (
    update {records} r
       set state = 4, settled_at = clock_timestamp(), doubt_status = null,
           (answer_status, answer_headers, answer_body, answer_coding, answer_length) = (
               select answer_status, answer_headers, answer_body, answer_coding, answer_length from other
               union all
               select $6::smallint, $7::bytea, $8::bytea, $9::smallint, $10::int where not exists (select from other)
           )
     where r.tenant = $1 and r.key = $2 and r.origin = '{origin}' and r.epoch = $3 and r.attempt = $4 and r.nonce = $5
       and r.state in (1, 2)
       and exists (select from onceway.hold_gate(null))
    returning r.tenant, r.key, r.origin, r.epoch, r.attempt, r.nonce, r.over, r.risk
), journalled as (
    insert into onceway.journal (kind, tenant, key, origin, epoch, attempt, reason, detail)
    select 'double', s.tenant, s.key, '{origin}', s.epoch, s.attempt,
           format(
               '%s %s.%s had answered %s, which stays; here %s.%s got %s',
               rtrim(o.origin, '!'), o.epoch, o.attempt, o.answer_status, s.epoch, s.attempt, $6::smallint
           ),
           jsonb_build_object(
               'with', rtrim(o.origin, '!') || ' ' || o.epoch || '.' || o.attempt, 'risk', s.risk,
               'at_risk', s.risk <> '{}' or o.risk <> '{}', 'named', {other_named} or {own_named},
               'own', jsonb_build_object(
                   'status', $6::smallint, 'length', $10::int, 'digest', encode(sha256($8::bytea), 'hex')
               ),
               'other', {other_answer}
           )
      from settled s cross join other o
     where s.nonce <> o.nonce
    on conflict do nothing
)
select exists (select from other) as other from settled
