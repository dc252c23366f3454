select version, lives, {now} as now_ms from onceway.promises
