update {records} r
   set state = 3, doubt_status = null
 where r.tenant = $1 and r.key = $2 and r.origin = '{origin}' and r.epoch = $3 and r.attempt = $4 and r.nonce = $5
   and r.state in (1, 2)
   and exists (select from onceway.hold_gate(null))
returning 1
