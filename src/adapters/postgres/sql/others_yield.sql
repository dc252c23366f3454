not exists (
                   select from onceway.records o
                    where o.tenant = p_tenant and o.key = p_key and o.origin <> '{origin}'
                      and not (o.state = 3 and o.attempt <= p_attempt)
                      and (o.state in (4, 5) or not exists (
                          select from (
                              select p_over as list union all
                              select x.over from onceway.records x where x.tenant = p_tenant and x.key = p_key
                          ) as named, jsonb_array_elements(named.list) as n
                           where n ->> 'origin' = rtrim(o.origin, '!')
                             and ((n ->> 'epoch')::numeric, (n ->> 'attempt')::numeric) >= (o.epoch, o.attempt)
                      ))
                      and not {outdone}
               )
