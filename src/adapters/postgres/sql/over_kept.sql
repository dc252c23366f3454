p_over || coalesce((
                       select jsonb_agg(k) from jsonb_array_elements(r.over) as k
                        where not exists (
                            select from jsonb_array_elements(p_over) as n where n ->> 'origin' = k ->> 'origin'
                        )
                   ), '[]')
