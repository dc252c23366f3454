select origin, applied, lag_ms from onceway.peer_memory order by origin
