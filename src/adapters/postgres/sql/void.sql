delete from onceway.escrows where tenant = $1 and key = $2 and origin = $3 and epoch = $4 and attempt = $5 and nonce = $6
