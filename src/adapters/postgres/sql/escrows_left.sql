select exists (select from onceway.escrows where origin = $1) as there
