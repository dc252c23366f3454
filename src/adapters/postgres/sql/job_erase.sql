update onceway.jobs set request = null
 where state = 2 and request is not null
   and forget_at <= (select least(clock_timestamp(), timestamptz 'epoch' + $1::bigint * interval '1 millisecond'))
returning 1
