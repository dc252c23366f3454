with j as (
    update onceway.jobs
       set state = 1, runs = 0, nonce = null, next_ms = {now}, trouble = null
     where tenant = $1 and key = $2 and state = 2 and request is not null
    returning tenant, key
), noted as (
    insert into onceway.journal (kind, tenant, key, origin, actor, reason)
    select 'job-retried', tenant, key, '{origin}', $3, $4 from j
)
select 1 from j
