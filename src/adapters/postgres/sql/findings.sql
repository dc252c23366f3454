select j.id as place, j.tenant, j.key, floor(extract(epoch from j.at) * 1000)::bigint as at_ms, j.kind, j.epoch, j.attempt, j.actor, j.reason,
       (j.detail ->> 'request')::uuid as request_id,
       coalesce(j.detail ->> 'status', j.detail -> 'own' ->> 'status')::smallint as status,
       (j.detail -> 'at_risk')::boolean as at_risk, (j.detail -> 'named')::boolean as named
  from onceway.journal j
 where j.id > $1::bigint and j.kind in ('double', 'late') and j.tenant is not null
   and j.at >= (select clock_timestamp() - $2::bigint * interval '1 millisecond')
 order by j.id
 limit $3::bigint
