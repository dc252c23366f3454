-- By hand: own attempts that are in doubt go by another rule from now on. Sorted, so that two operators cannot deadlock.
with asked as materialized (
    select r.tenant, r.key, r.recovery
      from unnest($1::text[], $2::bytea[], $3::bigint[], $4::int[], $5::uuid[]) as a(tenant, key, epoch, attempt, nonce)
      join {records} r on r.tenant = a.tenant and r.key = a.key and r.origin = '{origin}'
       and (r.epoch, r.attempt, r.nonce) = (a.epoch, a.attempt, a.nonce)
     where r.state = 2 and r.recovery <> $6
     order by r.tenant collate "C", r.key
       for update of r
), ruled as (
    update {records} r
       set recovery = $6
      from asked a
     where r.tenant = a.tenant and r.key = a.key and r.origin = '{origin}' and exists (select from onceway.hold_gate(null))
    returning r.tenant, r.key, r.epoch, r.attempt, a.recovery as before
), journalled as (
    insert into onceway.journal (kind, tenant, key, origin, epoch, attempt, actor, reason, detail)
    select 'rule-by-hand', tenant, key, '{origin}', epoch, attempt, $7, $8, jsonb_build_object('before', before, 'after', $6::int)
      from ruled
)
select count(*) as changed from ruled
