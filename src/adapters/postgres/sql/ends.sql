{row}.due_ms + case
               when {row}.origin = '{origin}' or {row}.origin like '%!' then 0
               else {start} - coalesce((select b.observed_ms from onceway.heartbeats b where b.origin = {row}.origin), 0)
           end
