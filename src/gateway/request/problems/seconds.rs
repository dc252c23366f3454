//! The member `retry_after` of a problem: seconds until a retry is useful.
//!
//! The header `Retry-After` has whole seconds only (RFC 9110, 10.2.3). The value must not be less
//! than the problem's.

use std::time::Duration;

use serde::Serialize;

/// Seconds; to the millisecond if a second would be long.
#[derive(Serialize)]
#[serde(untagged)]
pub(super) enum Seconds {
    Whole(u64),
    Fraction(f64),
}

impl Seconds {
    /// Rounded up.
    pub(super) fn whole(span: Duration) -> Self {
        Self::Whole(span.as_secs() + u64::from(span.subsec_nanos() > 0))
    }

    /// Rounded up to the millisecond.
    pub(super) fn exact(span: Duration) -> Self {
        Self::Fraction(span.as_nanos().div_ceil(1_000_000) as f64 / 1_000.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_round_up() {
        let text = |seconds: Seconds| serde_json::to_string(&seconds).unwrap();
        assert_eq!(text(Seconds::whole(Duration::from_millis(1_001))), "2");
        assert_eq!(text(Seconds::exact(Duration::from_micros(250_001))), "0.251");
    }
}
