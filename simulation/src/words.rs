//! Shared texts for a story and a breach: the name of a key, and a moment since clients began to
//! ask.
//!
//! [`crate::checker`] and [`crate::play`] write their texts with it, so that readers find a thing
//! of the one in the other. It must not be used for logs of gateways, which name no keys.

use std::time::Duration;

use onceway::protocol::key::KeyId;

/// A key by its tenant and its name.
pub fn key(id: &KeyId) -> String {
    format!("{}/{}", id.tenant(), id.key().as_str())
}

/// Seconds since clients began at `zero`, with microseconds; earlier moments have a minus. Both
/// count since the world began.
pub fn moment(at: Duration, zero: Duration) -> String {
    let (sign, span) = if at >= zero { ("", at - zero) } else { ("-", zero - at) };
    format!("{sign}{}.{:06}", span.as_secs(), span.subsec_micros())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_count_from_when_clients_began() {
        let zero = Duration::from_millis(2_900);
        assert_eq!(moment(Duration::from_micros(21_184_003), zero), "18.284003");
        assert_eq!(moment(Duration::from_millis(900), zero), "-2.000000");
    }
}
