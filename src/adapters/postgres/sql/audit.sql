-- One stretch of the runs at risk, in the order of keys after $1 and $2, at most $3 of them or few more (a key's are not parted), and where it
-- ended: own ones, and those of other origins while stores are replaced ($4). Of these, rows that ended otherwise than "nothing happened",
-- with each row of another origin that ran the key too: settled, or open and not superseded knowingly. Own runs, with all others; and pairs in
-- which a replaced store has a part: it finds nothing itself any more, and the other one may never get its rows. Where both rows ran at
-- risk and each counts beside the other, the own one is the first, else the one whose name is; where only one of them does, that one is
-- told whatever its name.
-- Each pair is journalled once, and told whenever it was journalled by this very call. A row of the same nonce is the same attempt.
with stretch as materialized (
    select u.*
      from (
          (
              select r.tenant, r.key, r.origin, r.state, r.epoch, r.attempt, r.nonce, r.over, r.risk
                from {records} r
               where r.risk <> '{}' and (r.tenant, r.key) > ($1::text collate "C", $2::bytea)
               order by r.tenant, r.key
               limit $3::bigint
          )
          union all
          (
              select r.tenant, r.key, r.origin, r.state, r.epoch, r.attempt, r.nonce, r.over, r.risk
                from onceway.records r
               where r.risk <> '{}' and (r.tenant, r.key) > ($1::text collate "C", $2::bytea)
                 and r.origin <> '{origin}' and cardinality($4::text[]) > 0
               order by r.tenant, r.key
               fetch first ($3::bigint) rows with ties
          )
      ) as u
     order by u.tenant, u.key
     fetch first ($3::bigint) rows with ties
), found as materialized (
    select r.tenant, r.key, r.origin as ran, r.epoch, r.attempt, r.risk, r.state,
           o.origin as other, rtrim(o.origin, '!') || ' ' || o.epoch || '.' || o.attempt as with_whom,
           jsonb_build_object('state', o.state) || {other_answer} as theirs
      from stretch r
      join onceway.records o on o.tenant = r.tenant and o.key = r.key and rtrim(o.origin, '!') <> rtrim(r.origin, '!')
     where r.state in (2, 4, 5) and o.nonce <> r.nonce and not {outdone}
       and (o.state = 4 or (o.state in (1, 2) and not {other_superseded}))
       and (r.origin = '{origin}' or (
           (rtrim(r.origin, '!') = any ($4::text[]) or rtrim(o.origin, '!') = any ($4::text[])) and not {run_outdone}
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
), journalled as (
    insert into onceway.journal (kind, tenant, key, origin, epoch, attempt, reason, detail)
    select 'double', f.tenant, f.key, rtrim(f.ran, '!'), f.epoch, f.attempt,
           format(
               'ran %s at risk as %s.%s (answer: %s) and as %s (answer: %s)',
               case when f.ran = '{origin}' then 'here' else 'as ' || rtrim(f.ran, '!') end, f.epoch, f.attempt,
               coalesce(r.answer_status::text, 'none'), f.with_whom, coalesce(f.theirs ->> 'status', 'none')
           ),
           jsonb_build_object(
               'with', f.with_whom, 'risk', f.risk, 'other', f.theirs,
               'own', jsonb_build_object(
                   'state', f.state, 'status', r.answer_status, 'length', r.answer_length,
                   'digest', encode(sha256(r.answer_body), 'hex')
               )
           )
      from found f
      join onceway.records r on r.tenant = f.tenant and r.key = f.key and r.origin = f.ran
    on conflict do nothing
    returning tenant, key, origin, detail ->> 'with' as with_whom
)
select (select s.tenant from stretch s order by s.tenant desc, s.key desc limit 1) as through_tenant,
       (select s.key from stretch s order by s.tenant desc, s.key desc limit 1) as through_key,
       (select count(*) from stretch) as looked_at,
       f.tenant, f.key, {columns}
  from (values (1)) as one
  left join (
      journalled j
      join found f on f.tenant = j.tenant and f.key = j.key and rtrim(f.ran, '!') = j.origin and f.with_whom = j.with_whom
      join onceway.records r on r.tenant = f.tenant and r.key = f.key and r.origin in (f.ran, f.other)
  ) on true
 order by f.tenant, f.key, f.ran <> '{origin}', f.ran, f.other, r.origin <> f.ran
