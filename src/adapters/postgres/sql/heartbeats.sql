select origin, seq, epoch from onceway.heartbeats order by origin
