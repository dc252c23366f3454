r.route,
       r.settled_at is not null as was_settled,
       extract(epoch from clock_timestamp() - r.held_at) * 1000 >= r.due_ms - r.held_ms + case r.state when 4 then r.tombstone_ms else 0 end as is_over,
       case when r.origin not like '%!' then floor(extract(epoch from r.held_at) * 1000)::bigint end as claimed_ms,
       r.tombstone_ms
