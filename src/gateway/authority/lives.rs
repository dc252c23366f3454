//! The longest life that keys are promised: the regions agree on it before the first such claim
//! (docs/protocol.md#rule-32).
//!
//! A replaced store is a risk for as long as its keys may be remembered. No region's own files may
//! judge that, as another region may have read longer lives before it was lost.

use std::sync::Arc;
use std::time::Duration;

use super::register::{learn, propose};
use crate::gateway::instance::Gateway;
use crate::gateway::policy::route::Routes;
use crate::ports::{Clock, Ports};
use crate::protocol::change::Change;
use crate::protocol::lifetime::Retention;
use crate::protocol::plant::{Check, is_disabled};

/// Time limit for agreeing on longer lives.
const WITHIN: Duration = Duration::from_secs(3);

impl<P: Ports> Gateway<P> {
    /// The longest life that keys of these routes are promised, or may be by `ring.toml`.
    pub(in crate::gateway) fn life_wanted(&self, routes: &Routes) -> Retention {
        let longest = routes.longest_life().max(self.settings.failover.max_life);
        longest.unwrap_or(Retention::For(Duration::ZERO)).and(self.settings.skew)
    }

    /// Has the regions agree on the lives that these routes promise, best before they are live:
    /// without it, claims of longer lives are refused. It is tried again while this region serves.
    pub async fn agree_on_lives(self: &Arc<Self>, routes: &Routes) {
        let view = self.view();
        let Ok(next) = view.next(&Change::Life(self.life_wanted(routes))) else { return };
        if !self.holds_lease(self.ports.clock().now()) {
            return;
        }
        tracing::info!(life = ?next.longest_life(), "keys are to be remembered for longer: the regions are asked");
        if let Err(why) = propose::propose(self, &view, Arc::new(next), WITHIN).await {
            tracing::warn!(why, "longer lives are not agreed on yet: such claims are refused until then");
        }
        // Claims go by the view that the gate follows.
        learn::adopt(self).await;
    }

    /// The life that the regions agreed on: keys of longer ago are forgotten.
    pub(in crate::gateway) fn agreed_life(&self) -> Retention {
        match is_disabled(Check::AgreedLife) {
            true => self.life_wanted(&self.live().routes),
            false => self.view().longest_life(),
        }
    }
}
