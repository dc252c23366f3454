not exists (
    select from onceway.records f where f.tenant = o.tenant and f.key = o.key and f.state in (4, 5)
) and not exists (
    select from onceway.records m, jsonb_array_elements(m.over) as n
     where m.tenant = o.tenant and m.key = o.key and n ->> 'origin' = rtrim(o.origin, '!')
       and ((n ->> 'epoch')::numeric, (n ->> 'attempt')::numeric) >= (o.epoch, o.attempt)
)
