update onceway.promises set version = version + 1, lives = $2 where version = $1 returning 1
