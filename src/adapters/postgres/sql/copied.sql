set state = excluded.state, epoch = excluded.epoch, attempt = excluded.attempt, nonce = excluded.nonce, fp_raw = excluded.fp_raw,
           fp_canonical = excluded.fp_canonical, over = excluded.over, risk = excluded.risk, request_id = excluded.request_id,
           doubt_status = excluded.doubt_status, answer_status = excluded.answer_status, answer_headers = excluded.answer_headers,
           answer_body = excluded.answer_body, answer_coding = excluded.answer_coding, answer_length = excluded.answer_length,
           settled_at = excluded.settled_at, held_at = excluded.held_at, hold = excluded.hold,
           settle_time = excluded.settle_time, expires_at = excluded.expires_at,
           due_at = excluded.due_at, tombstone = excluded.tombstone, route = excluded.route, path = excluded.path,
           principal = excluded.principal, accepted = excluded.accepted, doubted = excluded.doubted
