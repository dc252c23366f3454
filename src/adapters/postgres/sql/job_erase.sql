update onceway.jobs set request = null
 where state = 2 and forget_at <= clock_timestamp() and request is not null
returning 1
