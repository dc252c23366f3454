r.origin, r.state, r.epoch, r.attempt, r.nonce, r.fp_raw, r.fp_canonical, r.over, r.risk, r.request_id,
r.doubt_status, r.answer_status, {answer},
r.hold_ms - case when r.origin = '{origin}' then greatest({now} - r.held_ms, 0) else 0 end as hold_left_ms,
greatest(0, floor(extract(epoch from clock_timestamp() - r.settled_at) * 1000))::bigint as settled_age_ms,
floor(extract(epoch from r.expires_at) * 1000)::bigint as expires_ms,
r.origin = '{origin}' and r.due_ms <= {now} as expired,
{coding}, r.principal, r.accepted, r.doubted, r.settle_ms, r.recovery
