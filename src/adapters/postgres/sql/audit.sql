-- Rows that ran at risk and ended otherwise than "nothing happened", with each row of another origin that ran the key too: settled, or
-- open and not superseded knowingly. Own runs, with all others; and pairs in which a replaced store ($2) has a part: it finds nothing
-- itself any more, and the other one may never get its rows. Where both rows ran at risk and each counts beside the other, the own one is the
-- first, else the one whose name is; where only one of them does, that one is told whatever its name.
-- Each pair is journalled once, and told whenever it was journalled by this very call. A row of the same nonce is the same attempt.
with found as materialized (
    select r.tenant, r.key, r.origin as ran, r.epoch, r.attempt, r.risk, r.state, r.answer_status, r.answer_length, r.answer_body,
           o.origin as other, rtrim(o.origin, '!') || ' ' || o.epoch || '.' || o.attempt as with_whom,
           jsonb_build_object('state', o.state) || {other_answer} as theirs
      from onceway.records r
      join onceway.records o on o.tenant = r.tenant and o.key = r.key and rtrim(o.origin, '!') <> rtrim(r.origin, '!')
     where r.risk <> '{}' and r.state in (2, 4, 5) and o.nonce <> r.nonce and not {outdone}
       and (o.state = 4 or (o.state in (1, 2) and not {other_superseded}))
       and (r.origin = '{origin}' or (
           (rtrim(r.origin, '!') = any ($2::text[]) or rtrim(o.origin, '!') = any ($2::text[])) and not {run_outdone}
           -- The other direction is told, unless it is none: the own row comes first, else the lesser name.
           and (o.risk = '{}' or o.state not in (2, 4, 5) or r.state = 5 or (r.state = 2 and {run_superseded})
                or (o.origin <> '{origin}' and rtrim(r.origin, '!') < rtrim(o.origin, '!')))
       ))
       and not exists (
           select from onceway.journal j
            where j.kind = 'double' and j.tenant = r.tenant and j.key = r.key
              and (j.origin, j.detail ->> 'with') in (
                  (rtrim(r.origin, '!'), rtrim(o.origin, '!') || ' ' || o.epoch || '.' || o.attempt),
                  (rtrim(o.origin, '!'), rtrim(r.origin, '!') || ' ' || r.epoch || '.' || r.attempt)
              )
       )
     order by r.tenant, r.key, r.origin <> '{origin}'
     limit $1::bigint
), journalled as (
    insert into onceway.journal (kind, tenant, key, origin, epoch, attempt, reason, detail)
    select 'double', f.tenant, f.key, rtrim(f.ran, '!'), f.epoch, f.attempt,
           format(
               'ran %s at risk as %s.%s (answer: %s) and as %s (answer: %s)',
               case when f.ran = '{origin}' then 'here' else 'as ' || rtrim(f.ran, '!') end, f.epoch, f.attempt,
               coalesce(f.answer_status::text, 'none'), f.with_whom, coalesce(f.theirs ->> 'status', 'none')
           ),
           jsonb_build_object(
               'with', f.with_whom, 'risk', f.risk, 'other', f.theirs,
               'own', jsonb_build_object(
                   'state', f.state, 'status', f.answer_status, 'length', f.answer_length,
                   'digest', encode(sha256(f.answer_body), 'hex')
               )
           )
      from found f
    on conflict do nothing
    returning tenant, key, origin, detail ->> 'with' as with_whom
)
select f.tenant, f.key, f.ran, f.other, {columns}
  from journalled j
  join found f on f.tenant = j.tenant and f.key = j.key and rtrim(f.ran, '!') = j.origin and f.with_whom = j.with_whom
  join onceway.records r on r.tenant = f.tenant and r.key = f.key and r.origin in (f.ran, f.other)
 order by f.tenant, f.key, f.ran <> '{origin}', f.ran, f.other, r.origin <> f.ran
