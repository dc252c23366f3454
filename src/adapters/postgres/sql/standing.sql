-- What stands under a token and nonce after a write that changed nothing: a statement of its own, because the snapshot of the
-- write is older than a concurrent repeat of it.
select exists (select from onceway.gate where boot_started = pg_postmaster_start_time()) as open,
       r.state, r.answer_status, r.answer_headers, r.answer_body, r.answer_coding, r.answer_length
  from (values (1)) as one
  left join {records} r
    on r.tenant = $1 and r.key = $2 and r.origin = '{origin}' and r.epoch = $3 and r.attempt = $4 and r.nonce = $5
