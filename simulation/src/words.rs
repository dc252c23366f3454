//! Shared texts: a key, a moment since clients began to ask, and a list.
//!
//! Readers find a thing of a story in a breach by them, and the other way round.

use std::time::Duration;

use onceway::protocol::key::KeyId;

/// A key by its tenant and its name.
pub fn key(id: &KeyId) -> String {
    format!("{}/{}", id.tenant(), id.key().as_str())
}

/// Seconds since clients began at `zero`, with microseconds; earlier moments have a minus.
pub fn moment(at: Duration, zero: Duration) -> String {
    let (sign, span) = if at >= zero { ("", at - zero) } else { ("-", zero - at) };
    format!("{sign}{}.{:06}", span.as_secs(), span.subsec_micros())
}

/// The texts of all of these, with this between them.
pub(crate) fn joined<T: ToString>(all: impl IntoIterator<Item = T>, between: &str) -> String {
    all.into_iter().map(|one| one.to_string()).collect::<Vec<_>>().join(between)
}
