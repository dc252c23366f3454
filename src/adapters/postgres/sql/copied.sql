set state = excluded.state, epoch = excluded.epoch, attempt = excluded.attempt, nonce = excluded.nonce, fp_raw = excluded.fp_raw,
           fp_canonical = excluded.fp_canonical, over = excluded.over, risk = excluded.risk, request_id = excluded.request_id,
           doubt_status = excluded.doubt_status, answer_status = excluded.answer_status, answer_headers = excluded.answer_headers,
           answer_body = excluded.answer_body, answer_coding = excluded.answer_coding, answer_length = excluded.answer_length,
           settled_at = excluded.settled_at, held_at = excluded.held_at, held_ms = excluded.held_ms,
           hold_ms = excluded.hold_ms, settle_ms = excluded.settle_ms, expires_at = excluded.expires_at,
           due_ms = excluded.due_ms, tombstone_ms = excluded.tombstone_ms, route = excluded.route, path = excluded.path,
           principal = excluded.principal, recovery = excluded.recovery, accepted = excluded.accepted, doubted = excluded.doubted
