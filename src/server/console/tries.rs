//! Limit for wrong tokens at the console's sign-in: a few a minute for each process, with one log
//! line for all of them.
//!
//! Visitors are not told apart: through a forwarded port all of them come from this machine.
//! Sessions that exist, and programs that name the token, are not limited. This file must not keep
//! a token that was shown.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

const MOST: u32 = 10;
/// Length of a span. It begins with its first wrong token.
const SPAN: Duration = Duration::from_secs(60);

#[derive(Default)]
pub(in crate::server) struct Tries(Mutex<Span>);

#[derive(Default)]
struct Span {
    began: Option<Instant>,
    refused: u32,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Tried {
    Right,
    Wrong,
    /// Too many wrong tokens: this one was not looked at. No token is looked at for this long.
    TooMany(Duration),
}

impl Tries {
    /// Judges a token by `is_right`, if a try is allowed now.
    pub(super) fn judge(&self, now: Instant, is_right: impl FnOnce() -> bool) -> Tried {
        let mut span = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let left = span.began.map(|began| (began + SPAN).saturating_duration_since(now)).unwrap_or_default();
        if !left.is_zero() && span.refused >= MOST {
            span.refused = span.refused.saturating_add(1);
            return Tried::TooMany(left);
        }
        if is_right() {
            return Tried::Right;
        }
        if left.is_zero() {
            let before = span.refused;
            *span = Span { began: Some(now), refused: 0 };
            tracing::warn!(
                before,
                "somebody could not sign in to the console: a wrong token. Others within a minute are counted and told as `before` with the next such line"
            );
        }
        span.refused += 1;
        Tried::Wrong
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn right() -> bool {
        true
    }

    fn wrong() -> bool {
        false
    }

    #[test]
    fn ten_wrong_tries_block_sign_in_for_a_minute() {
        let (tries, begin) = (Tries::default(), Instant::now());
        let at = |seconds| begin + Duration::from_secs(seconds);
        assert_eq!(tries.judge(at(0), right), Tried::Right);
        for second in 0..10 {
            assert_eq!(tries.judge(at(second), wrong), Tried::Wrong, "{second}");
        }
        let unseen = || -> bool { panic!("it is looked at") };
        assert_eq!(tries.judge(at(20), unseen), Tried::TooMany(Duration::from_secs(40)));
        assert_eq!(tries.judge(at(59), unseen), Tried::TooMany(Duration::from_secs(1)));
        assert_eq!(tries.judge(at(60), right), Tried::Right);
        assert_eq!(tries.judge(at(61), wrong), Tried::Wrong, "a new minute begins");
        assert_eq!(tries.judge(at(62), right), Tried::Right, "right ones are not counted");
    }
}
