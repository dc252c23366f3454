r.origin, r.state, r.epoch, r.attempt, r.nonce, r.fp_raw, r.fp_canonical, r.over, r.risk, r.request_id,
r.doubt_status, r.answer_status, {answer},
case when r.origin = '{origin}' then ceil(extract(epoch from r.held_at + r.hold - clock_timestamp()) * 1000)
     else ceil(extract(epoch from r.hold) * 1000) end::bigint as hold_left_ms,
greatest(0, floor(extract(epoch from clock_timestamp() - r.settled_at) * 1000))::bigint as settled_age_ms,
floor(extract(epoch from r.expires_at) * 1000)::bigint as expires_ms,
r.origin = '{origin}' and r.due_at <= clock_timestamp() as expired,
{coding}, r.principal, r.accepted, r.doubted,
ceil(extract(epoch from r.settle_time) * 1000)::bigint as settle_ms,
floor(extract(epoch from clock_timestamp()) * 1000)::bigint as seen_ms
