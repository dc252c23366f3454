//! This region leaves if its upstream is sick for long, and returns if it was lost, sealed or
//! added.
//!
//! It seals (docs/protocol.md#rule-35), forwards until it was well for long enough, and takes its
//! arcs. One that is lost often waits longer each time. An operator's drain stays; one for health
//! does not.

use std::sync::{Arc, Weak};
use std::time::Duration;

use serde::Serialize;

use super::failover::{Mode, UpstreamHealth};
use super::moves::{self, Move};
use super::register::{learn, propose};
use super::takeover;
use crate::gateway::instance::Gateway;
use crate::gateway::telemetry::metrics::{self, observe};
use crate::gateway::upkeep::applied::applied;
use crate::ports::{Authority as _, Ports, Replica, Upkeep, Upstream};
use crate::protocol::authority::GateState;
use crate::protocol::change::Change;
use crate::protocol::health::{self, Facts};
use crate::protocol::region::{Origin, RegionName};
use crate::protocol::time::Moment;
use crate::protocol::view::{Standing, View};

const LOOK: Duration = Duration::from_millis(250);
const WITHIN: Duration = Duration::from_secs(3);
/// Period in which returns are counted. After the third, each further return doubles the wait.
const DAMPING: Duration = Duration::from_secs(600);
const DOUBLINGS: u32 = 6;

pub async fn home_loop<P: Ports>(gateway: Weak<Gateway<P>>) {
    let mut well = Well::None;
    while let Some(strong) = gateway.upgrade() {
        let now = strong.now();
        if let Err(why) = look(&strong, &mut well, now).await {
            tracing::info!(why, "this region cannot take its arcs back yet");
            well = None;
        }
        strong.rest(now + LOOK).await;
    }
}

/// The epoch of the view under which this region is well, and the moment since when it is.
type Well = Option<(u64, Moment)>;

async fn look<P: Ports>(gateway: &Arc<Gateway<P>>, well: &mut Well, now: Moment) -> Result<(), String> {
    let Some((_, GateState { view, .. })) = gateway.gate_state() else {
        *well = None;
        return Ok(());
    };
    let present = view.is_present(&gateway.origin);
    if view.epoch() < gateway.view().epoch() || gateway.is_stopping() || !present {
        return Ok(());
    }
    match view.standing(&gateway.settings.me) {
        Some(Standing::Lost { .. }) => seal(gateway, &view).await,
        // A region that left the ring has no arcs to take.
        Some(Standing::Sealed { drained: false })
            if view.ring().weight(&gateway.settings.me).is_none() || holds_back(gateway, &view) =>
        {
            *well = None;
            Ok(())
        }
        Some(Standing::Sealed { drained: false }) => {
            let since = well.filter(|(epoch, _)| *epoch == view.epoch()).map_or(now, |(_, since)| since);
            *well = Some((view.epoch(), since));
            if now.since(since) < stable_for(gateway).await || !is_covered(gateway, &view).await? {
                return Ok(());
            }
            if let Some(last) = nobody_left(gateway, &view) {
                // Leases that were granted at the beginning of this view may still run.
                if now.since(since) <= gateway.settings.drift.judge(gateway.snapshot().lease_length()) * 2 {
                    return Ok(());
                }
                let lost = takeover::lose(gateway, &view, &last, false).await;
                return lost.map(|_| ()).map_err(|why| format!("{last} serves and does not answer: {why}"));
            }
            tracing::info!("this region was well for long enough: taking its arcs back");
            let home = Move::stands(view, &gateway.settings.me, Standing::Serving);
            moves::move_to(gateway, &home).await.map(|_| ())
        }
        Some(Standing::Serving | Standing::Sealed { drained: true }) | None => Ok(()),
    }
}

/// A region that serves, if none answers: then none can declare the others lost or give arcs back.
/// A majority must still say that its lease is over.
fn nobody_left<P: Ports>(gateway: &Gateway<P>, view: &View) -> Option<RegionName> {
    let automatic = gateway.settings.failover.mode == Mode::Automatic;
    let silent = view.serving().all(|name| gateway.is_silent(name));
    view.serving().next().filter(|_| automatic && silent).cloned()
}

/// Seals the rows from before this region's loss, once rows flow again and no attempt runs.
async fn seal<P: Ports>(gateway: &Arc<Gateway<P>>, view: &Arc<View>) -> Result<(), String> {
    if gateway.authority.running.any(|_| true) {
        return Ok(());
    }
    if !flows(gateway, view) && !nobody_serves(gateway, view).await {
        return Ok(());
    }
    let beat = gateway.store().beat(None).await.map_err(|error| error.to_string())?;
    let Some(beat) = beat else { return Ok(()) };
    let Origin { region, generation } = gateway.origin.clone();
    let change = Change::Seal { region, generation, seal: beat.seq };
    let next = view.next(&change).map_err(|illegal| illegal.to_string())?;
    propose::propose(gateway, view, Arc::new(next), WITHIN).await.map(|_| ())
}

/// True if no region serves that could apply this region's rows: its seal must not wait for them.
/// Silence proves nothing, as a link may be cut: a majority must say that their leases are over.
async fn nobody_serves<P: Ports>(gateway: &Arc<Gateway<P>>, view: &View) -> bool {
    if !view.serving().all(|name| gateway.is_silent(name)) {
        return false;
    }
    let held = learn::read(gateway, view).await;
    view.serving().all(|name| takeover::is_over_by(view, name, &held).is_ok())
}

fn flows<P: Ports>(gateway: &Gateway<P>, view: &View) -> bool {
    let health = gateway.health();
    let Some((own, _)) = health.beat else { return false };
    let mark = view.members().get(&gateway.settings.me).map_or(0, |member| member.mark);
    let recent = own.saturating_sub(RECENT).max(mark).max(1);
    view.serving().all(|name| {
        let peer = health.peers.get(name).filter(|peer| peer.heard.is_some());
        peer.and_then(|peer| peer.pong.as_ref()?.applied.get(&gateway.origin)) >= Some(&recent)
    })
}

/// Heartbeats behind, at most, to count as flowing.
const RECENT: u64 = 20;

/// True if all earlier seals have been applied here and the rows of serving regions flow. A new
/// store has no mark to wait for, and must not take arcs before its first copies are whole.
async fn is_covered<P: Ports>(gateway: &Gateway<P>, view: &View) -> Result<bool, String> {
    let applied = applied(gateway.store()).await.map_err(|error| error.to_string())?;
    let health = gateway.health();
    let newest = |name| Some(health.peers.get(name)?.pong.as_ref()?.beat?.seq);
    // Rows of a region that left the ring are fetched from others, once keys are given.
    let counts = |name: &RegionName| *name != gateway.settings.me && view.ring().weight(name).is_some();
    Ok(view.members().iter().filter(|(name, _)| counts(name)).all(|(name, member)| {
        let here = view.origin(name).map_or(0, |origin| applied.rows(&origin));
        match member.standing {
            Standing::Serving => {
                here >= newest(name).unwrap_or(1).saturating_sub(RECENT).max(member.mark).max(1)
            }
            Standing::Sealed { .. } => here >= member.mark,
            Standing::Lost { .. } => true,
        }
    }))
}

/// Time that this region must have been well; it grows with the number of recent returns.
async fn stable_for<P: Ports>(gateway: &Gateway<P>) -> Duration {
    let kept = gateway.store().views().await.unwrap_or_default();
    let lately: Vec<&Arc<View>> =
        kept.iter().filter(|(_, age)| *age <= DAMPING).map(|(view, _)| view).collect();
    let me = &gateway.settings.me;
    let returns = lately.windows(2).filter(|pair| !pair[0].serves(me) && pair[1].serves(me)).count();
    let doublings = u32::try_from(returns.saturating_sub(2)).unwrap_or(DOUBLINGS).min(DOUBLINGS);
    gateway.settings.failover.stable_for * 2_u32.pow(doublings)
}

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
        let begun = strong.now();
        let probed = strong.ports.upstream().check(&check.path, check.within).await;
        let now = strong.now();
        heard(&strong, probed, now);
        if not_before.is_none_or(|moment| now >= moment)
            && let Err(why) = drain(&strong, check.cool_down, now).await
        {
            tracing::warn!(why, "this region could not be drained for its sick upstream");
            // Keys may have been given up in vain: no new try at once.
            not_before = Some(strong.now() + strong.settings.failover.kill_after * 2);
        }
        strong.rest(begun + check.every).await;
    }
}

fn heard<P: Ports>(gateway: &Gateway<P>, probed: Result<(), String>, now: Moment) {
    let mut health = gateway.authority.upstream.lock();
    let was = health.is_failing();
    health.checked(probed.is_ok(), now);
    drop(health);
    match probed {
        Err(why) if !was => tracing::warn!(why, "the upstream fails its checks"),
        Ok(()) if was => tracing::info!("the upstream is well again"),
        Ok(()) | Err(_) => {}
    }
    metrics::tell(observe::UPSTREAM_SICK, gateway.upstream_is_sick());
}

/// Drains this region, if its upstream is sick and others are better off.
async fn drain<P: Ports>(gateway: &Arc<Gateway<P>>, cool_down: Duration, now: Moment) -> Result<(), String> {
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
    let failing = gateway.authority.upstream.lock().failing_for(now).unwrap_or_default();
    let text = format!("{me}: its upstream has failed every check for {} s", failing.as_secs());
    tracing::warn!(text, "draining this region: it comes back by itself");
    if let Err(error) = gateway.store().note("drained-by-health", &text).await {
        tracing::error!(text, %error, "a drain for health could not be journalled");
    }
    moves::move_to(gateway, &Move::stands(view, me, Standing::Sealed { drained: false })).await?;
    metrics::count(observe::DRAINED_BY_HEALTH);
    Ok(())
}

/// Number of other regions that serve, own keys, answer, and do not report a failing upstream.
fn others_well<P: Ports>(gateway: &Gateway<P>, view: &View) -> usize {
    let well = |name: &&RegionName| {
        **name != gateway.settings.me
            && moves::owns(view.ring(), name)
            && !gateway.is_silent(name)
            && !gateway.says_failing(name)
    };
    view.serving().filter(well).count()
}

/// True if this region, which is out and could return, stays out because its upstream fails.
pub(super) fn holds_back<P: Ports>(gateway: &Gateway<P>, view: &View) -> bool {
    let failing = gateway.authority.upstream.lock().is_failing();
    failing && health::may_stay_out(others_well(gateway, view), gateway.settings.failover.min_serving)
}

impl<P: Ports> Gateway<P> {
    /// True if this region's upstream has failed for long enough to ask for a drain.
    pub(super) fn upstream_is_sick(&self) -> bool {
        let now = self.now();
        let check = self.settings.upstream_health.as_ref();
        check.is_some_and(|check| self.authority.upstream.lock().is_sick(check.sick_after, now))
    }

    /// True if the last check failed. Peers hear of that long before the upstream counts as sick:
    /// no region is drained to one that is about to notice the same.
    pub(in crate::gateway) fn upstream_fails(&self) -> bool {
        self.authority.upstream.lock().is_failing()
    }

    /// True if a region, this one or a peer, says that its upstream fails its checks.
    pub(super) fn says_failing(&self, name: &RegionName) -> bool {
        let probed = || self.health().peers.get(name)?.pong.as_ref().map(|pong| pong.upstream_failing);
        if *name == self.settings.me { self.upstream_fails() } else { probed().unwrap_or(false) }
    }

    /// Status of this region's upstream, if it is checked.
    pub fn upstream_status(&self) -> Option<UpstreamStatus> {
        self.settings.upstream_health.as_ref()?;
        let health = *self.authority.upstream.lock();
        let failing = health.failing_for(self.now());
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
