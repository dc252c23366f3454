(
                   select coalesce(max(o.doubted + case when o.state in (1, 2) then 1 else 0 end), 0)
                     from onceway.records o
                    where o.tenant = p_tenant and o.key = p_key
               )
