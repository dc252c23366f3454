-- What is on the list and still open, whoever made the attempt; an own claim that runs again is not in doubt, and whether another origin's
-- still runs is not for this database to say.
select d.tenant, d.key, floor(extract(epoch from d.since) * 1000)::bigint as since_ms, d.excerpt, r.route, r.path, {columns}
  from onceway.doubts d
 cross join lateral (
      select o.origin
        from onceway.records o
       where o.tenant = d.tenant and o.key = d.key and o.state in (1, 2) and not {outdone} and {unanswered}
         and (o.state = 2 or o.origin <> '{origin}' or o.held_ms + o.hold_ms <= {now})
       order by o.epoch desc, o.attempt desc, o.origin
       limit 1
  ) as top
  join onceway.records r on r.tenant = d.tenant and r.key = d.key and r.origin = top.origin
 where ($1::text is null or (d.tenant, d.key) > ($1::text collate "C", $2::bytea))
 order by d.tenant, d.key
 limit $3::bigint
