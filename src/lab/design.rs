//! The two designs that are compared, as a client meets them: one request, the same for both.
//!
//! It must not know either design.

use std::time::Duration;

use super::files;

pub(super) const TENANT: &str = files::TENANTS[0].0;
pub(super) const PATH: &str = "/v1/payouts";
pub(super) const BODY: &str = r#"{"amount":2000,"currency":"usd","destination":"acct_1"}"#;
/// Time that a client waits for one answer.
pub(super) const PATIENCE: Duration = Duration::from_secs(3);

/// Answer to a client, by kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Told {
    /// The upstream's answer.
    Answered,
    /// Another request works on the key: the client comes again.
    Busy,
    /// The outcome is unknown.
    InDoubt,
    /// Anything else.
    Failed,
}

pub(super) trait Design: Send + Sync + 'static {
    /// Asks region number `via` to perform the effect of `key`.
    fn serve(&self, via: usize, key: &str) -> impl Future<Output = Told> + Send;
}
