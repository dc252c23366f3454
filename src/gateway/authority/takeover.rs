//! Unclean takeover: declares a region lost if its lease ran out at a majority
//! (docs/protocol.md#rule-30).
//!
//! The lease is the failure detector, not the pings. Nothing is proposed while a majority may still
//! grant: a half-accepted takeover blocks every region.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::failover::Mode;
use super::register::learn::{self, Read};
use super::register::propose;
use crate::gateway::instance::Gateway;
use crate::gateway::upkeep::applied::applied;
use crate::ports::{Clock, Dice, Ports};
use crate::protocol::change::Change;
use crate::protocol::region::RegionName;
use crate::protocol::register::{Acceptor, agreed};
use crate::protocol::speakers;
use crate::protocol::time::Moment;
use crate::protocol::view::View;

const LOOK: Duration = Duration::from_millis(50);
/// Additional wait of each further survivor before it proposes the same.
const STEP: Duration = Duration::from_millis(150);
/// Time limit for one attempt to declare a region lost.
const WITHIN: Duration = Duration::from_secs(5);

/// Moment since which each region was seen to serve without a break. An older grant says nothing
/// about that time: it then gets one lease's time, like one that never renewed.
type Since = BTreeMap<RegionName, Moment>;

pub async fn watch_loop<P: Ports>(gateway: Weak<Gateway<P>>) {
    let mut since = Since::new();
    while let Some(strong) = gateway.upgrade() {
        let now = strong.now();
        let view = strong.view();
        since.retain(|region, _| view.serves(region));
        for region in view.serving() {
            since.entry(region.clone()).or_insert(now);
        }
        if view.epoch() > 0 {
            look(&strong, &since).await;
        }
        strong.rest(now + LOOK).await;
    }
}

async fn look<P: Ports>(gateway: &Arc<Gateway<P>>, since: &Since) {
    let Some(own) = propose::look(gateway).await else { return };
    if gateway.settings.failover.mode == Mode::Manual {
        return;
    }
    let view = gateway.view();
    let now = gateway.now();
    if !gateway.holds_lease(now) {
        return;
    }
    let me = &gateway.settings.me;
    let out = |region: &&RegionName| *region != me && is_over(gateway, &own, region, since, now);
    let Some(region) = view.serving().find(out).cloned() else { return };
    let rank = view.serving().filter(|name| **name != region).position(|name| name == me).unwrap_or(0);
    let wait = STEP * u32::try_from(rank).unwrap_or(u32::MAX);
    if !wait.is_zero() {
        let jitter = gateway.ports.dice().jitter(STEP / 4);
        gateway.ports.clock().sleep_until(now + wait + jitter).await;
    }
    if gateway.view().epoch() == view.epoch()
        && let Err(why) = lose(gateway, &view, &region, false).await
    {
        tracing::info!(%region, why, "a region whose lease is over here was not declared lost");
    }
}

fn is_over<P: Ports>(
    gateway: &Gateway<P>,
    own: &Acceptor,
    region: &RegionName,
    since: &Since,
    now: Moment,
) -> bool {
    let patience = gateway.settings.drift.judge(gateway.snapshot().lease_length());
    let Some(since) = since.get(region).filter(|since| now.since(**since) > patience) else { return false };
    match own.grants.get(region) {
        Some(grant) => gateway.authority.watch.lock().is_over(region, grant, now),
        // The region was never seen to renew. It gets the same time once more, as it may be
        // starting.
        None => now.since(*since) > patience * 2,
    }
}

/// Has a region declared lost, if a majority says that its lease is over. `by_hand`: an operator
/// says that it is gone, so a sealed one without a lease can be lost too.
pub async fn lose<P: Ports>(
    gateway: &Arc<Gateway<P>>,
    view: &Arc<View>,
    region: &RegionName,
    by_hand: bool,
) -> Result<Arc<View>, String> {
    // Pre-vote: nothing is prepared while a majority may still grant.
    let held = learn::read(gateway, view).await;
    if let Err(why) = may_lose(view, region, &held) {
        if is_unfinished(view, &held) {
            learn::newer(gateway).await;
        }
        return Err(why);
    }
    let frontier = frontier(gateway, view, region, &BTreeSet::new()).await;
    let change = Change::Lose { region: region.clone(), frontier };
    let next = view.next(&change).map_err(|illegal| illegal.to_string())?;
    tracing::warn!(%region, epoch = next.epoch(), by_hand, ?change, "declaring a region lost: its lease is over");
    propose::propose(gateway, view, Arc::new(next), WITHIN).await
}

/// True if a change is unfinished: without a lease no renewal meets it, and it blocks takeovers.
pub fn is_unfinished(view: &View, held: &Read) -> bool {
    held.values().any(|held| held.accepted.view.epoch() > view.epoch())
}

/// Checks if a region may be declared lost, by the state of the voters as read.
pub fn may_lose(view: &View, region: &RegionName, held: &Read) -> Result<(), String> {
    is_over_by(view, region, held).map_err(|why| match is_unfinished(view, held) {
        true => "a change that was begun and not ended comes first: try again in a moment".to_owned(),
        false => why,
    })
}

/// Checks that a majority of the voters, as read, says that the region's lease is over.
pub fn is_over_by(view: &View, region: &RegionName, held: &Read) -> Result<(), String> {
    let over = learn::ids(held.iter().filter(|(name, held)| {
        view.voters().get(*name) == Some(&held.id)
            && held.accepted.view.epoch() <= view.epoch()
            && !held.running.contains(region)
    }));
    if agreed(view.voters(), &over) {
        return Ok(());
    }
    let by = match &over.keys().map(RegionName::as_str).collect::<Vec<_>>()[..] {
        [] => "no voter says that".to_owned(),
        by => format!("only {} say that", by.join(", ")),
    };
    Err(format!("its lease may run still: {by} it is over, which is no majority"))
}

/// The highest heartbeat of the region that any region of the ring has applied, as known now. A
/// survivor with more says so before anything opens (docs/protocol.md#rule-33). Rows of regions in
/// `gone`, or outside the ring, alone do not count: nobody can fetch them, so the gap must show.
pub async fn frontier<P: Ports>(
    gateway: &Arc<Gateway<P>>,
    view: &View,
    region: &RegionName,
    gone: &BTreeSet<RegionName>,
) -> u64 {
    let Some(origin) = view.origin(region) else { return 0 };
    let own = applied(gateway.store()).await.map_or(0, |own| own.rows(&origin));
    let health = gateway.health();
    let counts = |name: &RegionName| !gone.contains(name) && speakers::tells_of_others(name, view);
    let left = health.peers.iter().filter(|(name, _)| counts(name)).map(|(_, peer)| peer);
    let others = left.filter_map(|peer| peer.pong.as_ref()?.applied.get(&origin).copied());
    others.chain([own]).max().unwrap_or(own)
}
