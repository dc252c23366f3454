select floor(extract(epoch from j.at) * 1000)::bigint as at_ms, j.kind, j.epoch, j.attempt, j.actor, j.reason,
       (j.detail ->> 'request')::uuid as request_id,
       coalesce(j.detail ->> 'status', j.detail -> 'own' ->> 'status')::smallint as status,
       (j.detail -> 'at_risk')::boolean as at_risk, (j.detail -> 'named')::boolean as named
  from onceway.journal j
 where j.tenant = $1 and j.key = $2
 order by j.id desc
 limit 100
