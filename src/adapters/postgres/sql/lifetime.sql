coalesce(clock_timestamp() + p_promised_ms * interval '1 millisecond', '{never}'),
                   coalesce({start} + p_promised_ms + p_skew_ms, {never_ms}), p_tombstone_ms, p_route, p_path, p_principal, p_recovery
