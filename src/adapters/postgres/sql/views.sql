select epoch, view, greatest(0, {now} - stored_ms) as stored_ms from onceway.views order by epoch
