//! A database's clock that was wrong, as its store remembers it: the clock of a test's machine
//! cannot be moved. It must run only while no gateway of the region does.

/// Makes it so that the clock was two days behind when a gateway looked last, and is right now.
pub const BEHIND: &str = "update onceway.observed set version = version + 1, observed = jsonb_set(observed, '{at_ms}', to_jsonb((observed ->> 'at_ms')::bigint - 172800000))";
/// Takes that back.
pub const RIGHT: &str =
    "update onceway.observed set version = version + 1, observed = jsonb_set(observed, '{leads}', '[]')";
