//! Health of this region's upstream: checked on its own path and reported to peers. If it is sick
//! for long, this region is drained, and returns by itself.
//!
//! `protocol::health` decides; [`super::failback`] brings the region back once checks succeed. The
//! view says sealed, not drained: an operator's drain stays until it is resumed, this one does not.

use std::sync::{Arc, Weak};
use std::time::Duration;

use serde::Serialize;

use super::failover::UpstreamHealth;
use super::members;
use super::moves::{self, Move};
use crate::gateway::instance::Gateway;
use crate::gateway::telemetry::metrics;
use crate::ports::{Clock, Ports, Upkeep, Upstream};
use crate::protocol::health::{self, Facts};
use crate::protocol::region::RegionName;
use crate::protocol::time::Moment;
use crate::protocol::view::{Standing, View};

/// A gateway's report about its upstream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct UpstreamStatus {
    /// True if the last check succeeded.
    pub well: bool,
    /// Milliseconds for which every check has failed.
    pub failing_ms: Option<u64>,
    /// True if that is long enough to ask for a drain.
    pub sick: bool,
    /// True if this region is out because of it, and comes back by itself.
    pub keeps_out: bool,
}

pub(in crate::gateway) async fn check_loop<P: Ports>(gateway: Weak<Gateway<P>>, check: UpstreamHealth) {
    let mut not_before = None;
    while let Some(strong) = gateway.upgrade() {
        let begun = strong.ports.clock().now();
        let probed = strong.ports.upstream().check(&check.path, check.within).await;
        let now = strong.ports.clock().now();
        heard(&strong, probed, now);
        if not_before.is_none_or(|moment| now >= moment)
            && let Err(why) = look(&strong, check.cool_down, now).await
        {
            tracing::warn!(why, "this region could not be drained for its sick upstream");
            // Keys may have been given up in vain: no new try at once.
            not_before = Some(strong.ports.clock().now() + strong.settings.failover.kill_after * 2);
        }
        strong.rest(begun + check.every).await;
    }
}

fn heard<P: Ports>(gateway: &Gateway<P>, probed: Result<(), String>, now: Moment) {
    let mut health = gateway.authority.upstream();
    let was = health.is_failing();
    health.checked(probed.is_ok(), now);
    drop(health);
    match probed {
        Err(why) if !was => tracing::warn!(why, "the upstream fails its checks"),
        Ok(()) if was => tracing::info!("the upstream is well again"),
        Ok(()) | Err(_) => {}
    }
    metrics::upstream_sick(gateway.upstream_is_sick());
}

/// Drains this region, if its upstream is sick and others are better off.
async fn look<P: Ports>(gateway: &Arc<Gateway<P>>, cool_down: Duration, now: Moment) -> Result<(), String> {
    let view = gateway.view();
    let me = &gateway.settings.me;
    if !gateway.upstream_is_sick() || !view.serves(me) || !gateway.holds_lease(now) || gateway.is_stopping() {
        return Ok(());
    }
    let facts = Facts {
        others_well: others_well(gateway, &view),
        min_serving: gateway.settings.failover.min_serving,
        serving_for: gateway.snapshot().given.map(|given| now.since(given)),
        cool_down,
    };
    if let Err(stays) = health::may_drain(&facts) {
        tracing::debug!(%stays, "the upstream is sick, and this region stays");
        return Ok(());
    }
    let failing = gateway.authority.upstream().failing_for(now).unwrap_or_default();
    let text = format!("{me}: its upstream has failed every check for {} s", failing.as_secs());
    tracing::warn!(text, "draining this region: it comes back by itself");
    if let Err(error) = gateway.ports.store().note("drained-by-health", &text).await {
        tracing::error!(text, %error, "a drain for health could not be journalled");
    }
    moves::move_to(gateway, &Move::stands(view, me, Standing::Sealed { drained: false })).await?;
    metrics::drained_by_health();
    Ok(())
}

/// Number of other regions that serve, own keys, answer, and do not report a failing upstream.
fn others_well<P: Ports>(gateway: &Gateway<P>, view: &View) -> usize {
    let well = |name: &&RegionName| {
        **name != gateway.settings.me
            && members::owns(view.ring(), name)
            && !gateway.is_silent(name)
            && !gateway.says_failing(name)
    };
    view.serving().filter(well).count()
}

/// True if this region, which is out and could return, stays out because its upstream fails.
pub(super) fn holds_back<P: Ports>(gateway: &Gateway<P>, view: &View) -> bool {
    let failing = gateway.authority.upstream().is_failing();
    failing && health::may_stay_out(others_well(gateway, view), gateway.settings.failover.min_serving)
}

impl<P: Ports> Gateway<P> {
    /// True if this region's upstream has failed for long enough to ask for a drain. False if it is
    /// not checked.
    pub(super) fn upstream_is_sick(&self) -> bool {
        let now = self.ports.clock().now();
        let check = self.settings.upstream_health.as_ref();
        check.is_some_and(|check| self.authority.upstream().is_sick(check.sick_after, now))
    }

    /// True if the last check of this region's upstream failed. Peers hear of that long before the
    /// upstream counts as sick. If all upstreams fail, one region notices first: it must not be
    /// drained to regions that are about to notice.
    pub(in crate::gateway) fn upstream_fails(&self) -> bool {
        self.authority.upstream().is_failing()
    }

    /// True if a region, this one or a peer, says that its upstream fails its checks.
    pub(super) fn says_failing(&self, name: &RegionName) -> bool {
        let probed = || self.health().peers.get(name)?.pong.as_ref().map(|pong| pong.upstream_failing);
        if *name == self.settings.me { self.upstream_fails() } else { probed().unwrap_or(false) }
    }

    /// Status of this region's upstream, if it is checked.
    pub fn upstream_status(&self) -> Option<UpstreamStatus> {
        self.settings.upstream_health.as_ref()?;
        let health = *self.authority.upstream();
        let failing = health.failing_for(self.ports.clock().now());
        let view = self.view();
        let out = view.standing(&self.settings.me) == Some(Standing::Sealed { drained: false });
        Some(UpstreamStatus {
            well: !health.is_failing(),
            failing_ms: failing.map(|failing| u64::try_from(failing.as_millis()).unwrap_or(u64::MAX)),
            sick: self.upstream_is_sick(),
            keeps_out: out && holds_back(self, &view),
        })
    }
}
