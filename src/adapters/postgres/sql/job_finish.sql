delete from onceway.jobs where tenant = $1 and key = $2 and nonce = $3 and state = 1 returning 1
