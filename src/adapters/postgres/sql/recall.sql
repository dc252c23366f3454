select origin, applied, lag_ms, imported from onceway.peer_memory order by origin
