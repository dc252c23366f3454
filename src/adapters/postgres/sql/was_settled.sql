((r.state = 4 and r.due_at + r.tombstone > clock_timestamp())
        or (r.state = 5 and r.settled_at is not null and r.due_at > clock_timestamp()))
