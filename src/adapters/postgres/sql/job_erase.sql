update onceway.jobs set request = null
 where state = 2 and request is not null
   and forget_ms <= {now}
returning 1
