-- Bounds stand in scalar sub-selects, because an index cannot be searched with a volatile function: else each look would read all jobs
-- that wait for a later run.
with d as materialized (
    select tenant, key from onceway.jobs
     where state = 1 and next_at <= (select clock_timestamp())
     order by next_at
     limit $2
       for update skip locked
)
