insert into onceway.journal (kind, origin, reason) values ($1, '{origin}', $2)
