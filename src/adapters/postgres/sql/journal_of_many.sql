-- What the journal says about each of these keys, oldest first.
select u.ord, floor(extract(epoch from j.at) * 1000)::bigint as at_ms, j.kind, j.epoch, j.attempt, j.actor, j.reason,
       (j.detail ->> 'request')::uuid as request_id,
       coalesce(j.detail ->> 'status', j.detail -> 'own' ->> 'status')::smallint as status,
       (j.detail -> 'at_risk')::boolean as at_risk, (j.detail -> 'named')::boolean as named
  from unnest($1::text[], $2::bytea[]) with ordinality as u(tenant, key, ord)
  join onceway.journal j on j.tenant = u.tenant and j.key = u.key
 order by u.ord, j.id
