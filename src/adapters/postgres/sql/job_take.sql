with d as materialized (
    select tenant, key from onceway.jobs
     where state = 1 and next_ms <= {now}
     order by next_ms
     limit $2
       for update skip locked
)
