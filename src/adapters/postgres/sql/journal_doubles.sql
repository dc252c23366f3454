-- Doubles that the journal does not have yet, in either order of their two attempts; sorted, so that two gateways cannot deadlock. What
-- explains them is kept as facts: `at_risk` and `named`. Answers are told without their bodies. Returns those that were journalled.
with given as materialized (
    select g.*, g.origin || ' ' || g.epoch || '.' || g.attempt as first, g.other || ' ' || g.other_epoch || '.' || g.other_attempt as second
      from unnest(
               $1::text[], $2::bytea[], $3::text[], $4::bigint[], $5::int[], $6::uuid[], $7::text[], $8::bigint[], $9::int[], $10::uuid[],
               $11::boolean[], $12::boolean[], $13::text[]
           ) with ordinality as g(
               tenant, key, origin, epoch, attempt, nonce, other, other_epoch, other_attempt, other_nonce, at_risk, named, reason, ord
           )
), made as (
    insert into onceway.journal (kind, tenant, key, origin, epoch, attempt, reason, detail)
    select 'double', g.tenant, g.key, g.origin, g.epoch, g.attempt, g.reason,
           jsonb_build_object(
               'with', g.second, 'at_risk', g.at_risk, 'named', g.named,
               'risk', (select coalesce(jsonb_agg(distinct n), '[]') from unnest(r.risk || o.risk) as n),
               'own', jsonb_build_object(
                   'state', r.state, 'status', r.answer_status, 'length', r.answer_length, 'digest', encode(sha256(r.answer_body), 'hex')
               ),
               'other', jsonb_build_object('state', o.state) || {other_answer}
           )
      from given g
      left join lateral (
          select * from onceway.records f
           where f.tenant = g.tenant and f.key = g.key and f.origin in (g.origin, g.origin || '!') and f.nonce = g.nonce
           order by f.state desc
           limit 1
      ) r on true
      left join lateral (
          select * from onceway.records f
           where f.tenant = g.tenant and f.key = g.key and f.origin in (g.other, g.other || '!') and f.nonce = g.other_nonce
           order by f.state desc
           limit 1
      ) o on true
     where not exists (
         select from onceway.journal j
          where j.kind = 'double' and j.tenant = g.tenant and j.key = g.key
            and (j.origin, j.detail ->> 'with') in ((g.origin, g.second), (g.other, g.first))
     )
     order by g.tenant collate "C", g.key, g.origin, g.second
    on conflict do nothing
    returning tenant, key, origin, detail ->> 'with' as second
)
select g.ord from given g join made m on m.tenant = g.tenant and m.key = g.key and m.origin = g.origin and m.second = g.second
