r.route,
       r.settled_at is not null as was_settled,
       case r.state when 4 then r.due_at + r.tombstone else r.due_at end <= clock_timestamp() as is_over,
       case when r.origin not like '%!' then floor(extract(epoch from r.held_at) * 1000)::bigint end as claimed_ms,
       ceil(extract(epoch from r.tombstone) * 1000)::bigint as tombstone_ms
