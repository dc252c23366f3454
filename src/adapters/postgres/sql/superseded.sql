exists (
           select from jsonb_array_elements({by}.over) as n
            where n ->> 'origin' = rtrim({row}.origin, '!')
              and ((n ->> 'epoch')::numeric, (n ->> 'attempt')::numeric) >= ({row}.epoch, {row}.attempt)
       )
