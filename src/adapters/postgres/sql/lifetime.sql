coalesce(clock_timestamp() + p_promised_ms * interval '1 millisecond', '{never}'),
                   coalesce(clock_timestamp() + (p_promised_ms + p_skew_ms) * interval '1 millisecond', '{never}'),
                   p_tombstone_ms * interval '1 millisecond', p_route, p_path, p_principal
