-- The answer of an attempt whose row is not there any more, or was released. A row of this very attempt that is final says that its
-- outcome is known: then nothing is late. A statement of its own behind the settlement, so that it sees what that one lost to.
insert into onceway.journal (kind, tenant, key, origin, epoch, attempt, reason, detail)
select 'late', $1, $2, '{origin}', $3, $4,
       format(
           'answered %s, too late: by then %s', $7::smallint,
           coalesce((
               select case
                          when (r.epoch, r.attempt, r.nonce) = ($3, $4, $5) then 'the attempt had been released'
                          else format('attempt %s.%s stood in its place', r.epoch, r.attempt)
                      end
                 from {records} r where r.tenant = $1 and r.key = $2 and r.origin = '{origin}'
           ), 'its record was gone')
       ),
       jsonb_build_object(
           'nonce', $5::uuid, 'request', $6::uuid, 'status', $7::smallint, 'length', $8::int, 'digest', encode(sha256($9::bytea), 'hex')
       )
 where not exists (
           select from {records} r
            where r.tenant = $1 and r.key = $2 and r.origin = '{origin}' and r.epoch = $3 and r.attempt = $4 and r.nonce = $5
              and r.state in (4, 5)
       )
   and not exists (
           select from onceway.journal j
            where j.tenant = $1 and j.key = $2 and j.kind = 'late' and (j.detail ->> 'nonce')::uuid = $5
       )
returning 1
