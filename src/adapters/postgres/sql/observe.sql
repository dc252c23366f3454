update onceway.observed set version = version + 1, observed = $2 where version = $1 returning 1
