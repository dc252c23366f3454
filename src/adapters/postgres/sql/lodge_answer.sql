update onceway.escrows
   set answer_status = $7, answer_headers = $8, answer_body = $9, answer_coding = $10, answer_length = $11,
       answered_at = coalesce(answered_at, clock_timestamp())
 where tenant = $1 and key = $2 and origin = $3 and epoch = $4 and attempt = $5 and nonce = $6
returning 1
