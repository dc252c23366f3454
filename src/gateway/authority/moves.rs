//! Clean moves of arcs: stop, seal, agree (docs/protocol.md#rule-27); and who may join or leave.
//!
//! A region gives nothing up that it does not lose. It may give keys up for a change that no
//! majority agrees on. It ends that after a while, by agreeing on an equal view.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;

use super::act_error::{ActError, not_yet, refused};
use super::register::propose;
use crate::gateway::instance::Gateway;
use crate::gateway::upkeep::applied::applied;
use crate::ports::peers::{PeerReply, Question};
use crate::ports::store::Written;
use crate::ports::{Authority as _, Clock, KeyStore, Peers, Ports, Replica};
use crate::protocol::authority::{GateState, Pending};
use crate::protocol::change::{Change, Report};
use crate::protocol::region::{Origin, RegionName};
use crate::protocol::ring::Ring;
use crate::protocol::view::{Escrowed, Release, Standing, View};

/// Time for a loser's report, in addition to its drain.
const REPORT_WITHIN: Duration = Duration::from_secs(2);
/// Time limit for agreeing on a change once all losers have sealed.
const AGREE_WITHIN: Duration = Duration::from_secs(2);
const LOOK: Duration = Duration::from_millis(5);
const TRIES: usize = 8;

pub struct Move {
    pub base: Arc<View>,
    pub ring: Arc<Ring>,
    pub escrow: Escrowed,
    pub standings: BTreeMap<RegionName, Standing>,
}

impl Move {
    /// Leaves everything as it is but the standing of one region.
    pub fn stands(base: Arc<View>, region: &RegionName, to: Standing) -> Self {
        let (ring, escrow) = (base.ring().clone(), base.escrow().clone());
        Self { base, ring, escrow, standings: [(region.clone(), to)].into() }
    }

    pub fn draft(&self) -> Result<View, String> {
        let draft = self.base.draft(self.ring.clone(), self.escrow.clone(), &self.standings);
        draft.map_err(|illegal| illegal.to_string())
    }
}

/// Makes a move: all regions that lose keys stop and seal, then the view is agreed on.
pub async fn move_to<P: Ports>(gateway: &Arc<Gateway<P>>, wanted: &Move) -> Result<Arc<View>, String> {
    // Whoever proposes a change has its own lease agreed on with it.
    let target = Arc::new(wanted.draft()?.with_lease(gateway.settings.failover.lease));
    let reports = reports(gateway, &wanted.base, &target).await?;
    let next = wanted.base.next(&Change::Move { target, reports }).map_err(|illegal| illegal.to_string())?;
    propose::propose(gateway, &wanted.base, Arc::new(next), AGREE_WITHIN).await
}

async fn reports<P: Ports>(
    gateway: &Arc<Gateway<P>>,
    base: &Arc<View>,
    target: &Arc<View>,
) -> Result<BTreeMap<RegionName, Report>, String> {
    let within = gateway.settings.failover.drain_limit + REPORT_WITHIN;
    let (into, mut incoming) = mpsc::unbounded_channel();
    for loser in base.losers(target).cloned() {
        let (gateway, target, into) = (gateway.clone(), target.clone(), into.clone());
        tokio::spawn(async move {
            let report = ask(&gateway, &loser, target, within).await;
            // A closed channel is fine: another loser has refused.
            let _ = into.send((loser, report));
        });
    }
    drop(into);
    let mut reports = BTreeMap::new();
    while let Some((loser, report)) = incoming.recv().await {
        let report = report.map_err(|why| format!("region {loser} did not give its keys up: {why}"))?;
        reports.insert(loser, report);
    }
    Ok(reports)
}

async fn ask<P: Ports>(
    gateway: &Arc<Gateway<P>>,
    loser: &RegionName,
    target: Arc<View>,
    within: Duration,
) -> Result<Report, String> {
    if *loser == gateway.settings.me {
        return release(gateway, target).await;
    }
    match gateway.ports.peers().ask(loser, Question::Release { target }, within).await {
        Ok(PeerReply::Released(report)) => Ok(report),
        Ok(PeerReply::Refused(why)) => Err(why),
        Ok(other) => Err(format!("it answered {other:?}")),
        Err(error) => Err(error.to_string()),
    }
}

/// Gives up the keys that this region loses by `target`: closes the gate for them, lets running
/// attempts end, seals, reports. A repeated call reports the same.
pub async fn release<P: Ports>(gateway: &Arc<Gateway<P>>, target: Arc<View>) -> Result<Report, String> {
    let state = change_gate(gateway, |state| {
        if target.epoch().checked_sub(1) != Some(state.view.epoch()) {
            return Err(format!(
                "this region is at epoch {}: not what the change was made from",
                state.view.epoch()
            ));
        }
        match &state.pending {
            None => Ok(Some(state.give_up(Some(Pending { target: target.clone(), seal: None })))),
            Some(pending) if pending.target.placement() == target.placement() => Ok(None),
            Some(_) => Err("another change is pending here".to_owned()),
        }
    })
    .await?;
    let base = state.view.clone();
    let seal = match state.pending.and_then(|pending| pending.seal) {
        Some(seal) => seal,
        None => seal(gateway, &base, &target).await?,
    };
    let applied = applied(gateway.store()).await.map_err(|error| error.to_string())?;
    let release = Release { base: base.epoch(), target: target.placement() };
    let seen = base.losses().map(|(origin, _)| (origin.clone(), applied.rows(&origin))).collect();
    Ok(Report { generation: gateway.origin.generation, seal, release, seen })
}

/// Waits a moment for the moving keys, then writes the heartbeat after the last of them.
async fn seal<P: Ports>(gateway: &Arc<Gateway<P>>, base: &View, target: &View) -> Result<u64, String> {
    let clock = gateway.ports.clock();
    let until = clock.now() + gateway.settings.failover.drain_limit;
    let me = &gateway.settings.me;
    // Comfort only: attempts that still run travel as claimed, and get a full hold where they
    // arrive.
    while clock.now() < until
        && gateway.authority.running.any(|id| base.owner(id) == Some(me) && target.owner(id) != Some(me))
    {
        clock.sleep_until(clock.now() + LOOK).await;
    }
    let beat = gateway.store().beat(None).await.map_err(|error| error.to_string())?;
    let seal = beat.ok_or("the store restarted and is not approved yet")?.seq;
    change_gate(gateway, |state| match &state.pending {
        Some(pending) if pending.target.placement() == target.placement() => {
            Ok(Some(state.give_up(Some(Pending { seal: Some(seal), ..pending.clone() }))))
        }
        Some(_) | None => Err("the change was ended meanwhile".to_owned()),
    })
    .await?;
    tracing::info!(seal, epoch = target.epoch(), "sealed what moves away");
    Ok(seal)
}

/// Changes the gate's state by compare-and-set and returns it. `None` leaves it as it is.
pub async fn change_gate<P: Ports>(
    gateway: &Arc<Gateway<P>>,
    change: impl Fn(&GateState) -> Result<Option<GateState>, String>,
) -> Result<GateState, String> {
    for _ in 0..TRIES {
        let gate = gateway.store().gate().await.map_err(|error| error.to_string())?;
        gateway.install_gate(gate.clone());
        let Some(state) = gate.state else { return Err("the register is not founded".to_owned()) };
        let Some(next) = change(&state)? else { return Ok(state) };
        match gateway.store().set_gate(gate.version, &next).await.map_err(|error| error.to_string())? {
            Written::Done => {
                if let Ok(gate) = gateway.store().gate().await {
                    gateway.install_gate(gate);
                }
                return Ok(next);
            }
            Written::Lost => {}
            Written::GateMoved => return Err("the store restarted and is not approved yet".to_owned()),
        }
    }
    Err("the gate keeps changing: ask again".to_owned())
}

/// Ends a change that keys were given up for but no majority agrees on.
pub fn watch_pending<P: Ports>(gateway: &Arc<Gateway<P>>, state: &GateState) {
    let now = gateway.now();
    let due = {
        let mut gathered = gateway.authority.gathered.lock();
        let Some(pending) = &state.pending else {
            gathered.pending = None;
            return;
        };
        let epoch = pending.target.epoch();
        let since = gathered.pending.filter(|(known, _)| *known == epoch).map_or(now, |(_, since)| since);
        let due = now.since(since) >= gateway.settings.failover.kill_after;
        // The next try comes after the same time again.
        gathered.pending = Some((epoch, if due { now } else { since }));
        due
    };
    if due {
        let (gateway, base) = (gateway.clone(), state.view.clone());
        tokio::spawn(async move {
            let Ok(next) = base.next(&Change::Kill) else { return };
            match propose::propose(&gateway, &base, Arc::new(next), AGREE_WITHIN).await {
                Ok(view) => tracing::warn!(epoch = view.epoch(), "ended a change that nobody agreed on"),
                Err(why) => tracing::warn!(why, "a change that nobody agreed on could not be ended yet"),
            }
        });
    }
}

/// Number of regions that would own keys under that ring if `gone` no longer served.
pub fn owners(view: &View, ring: &Ring, gone: Option<&RegionName>) -> usize {
    view.serving().filter(|name| Some(*name) != gone && owns(ring, name)).count()
}

/// True if that ring lets a region own keys. An edge forwards only.
pub fn owns(ring: &Ring, name: &RegionName) -> bool {
    ring.weight(name).is_some_and(|weight| weight > 0)
}

pub fn may_apply<P: Ports>(gateway: &Gateway<P>, base: &View, ring: &Ring) -> Result<(), ActError> {
    let leaves = |name: &&RegionName| ring.weight(name).is_none();
    if let Some(serves) = base.serving().find(leaves) {
        return refused(format!(
            "region {serves} still serves and owns keys: `onceway region drain {serves}` first, then apply this ring"
        ));
    }
    let (before, after) = (owners(base, base.ring(), None), owners(base, ring, None));
    let least = gateway.settings.failover.min_serving;
    if after == 0 {
        return refused("no region that serves would own keys: never the last region");
    }
    if after < before && after < least {
        return refused(format!(
            "only {after} regions that serve would own keys, min_serving is {least}: resume or add another first"
        ));
    }
    for spec in ring.regions().iter().filter(|spec| base.ring().weight(&spec.name).is_none()) {
        may_join(gateway, base, &spec.name)?;
    }
    Ok(())
}

/// Checks that a new region answers, and exchanges rows both ways with all that serve. Otherwise it
/// would wait for ever, or get requests that no region can forward.
fn may_join<P: Ports>(gateway: &Gateway<P>, base: &View, name: &RegionName) -> Result<(), ActError> {
    let not_yet = |why: String| not_yet(format!("region {name} cannot join yet: {why}"));
    let me = &gateway.settings.me;
    if gateway.is_silent(name) && name != me {
        return not_yet(format!(
            "its gateway does not answer {me}: start it, and restart the gateways of {me} with the files that name {name}"
        ));
    }
    let health = gateway.health();
    let pong = |of: &RegionName| health.peers.get(of).and_then(|peer| peer.pong.as_ref());
    if let Some(trouble) = health.peers.get(name).and_then(|peer| peer.trouble.as_ref()) {
        return not_yet(trouble.clone());
    }
    let (goes_by, speaks) = (base.protocol(), pong(name).map(|pong| pong.speaks));
    if let Some(speaks) = speaks.filter(|speaks| !speaks.has(goes_by)) {
        return not_yet(format!(
            "the regions go by protocol version {goes_by} and it speaks {speaks}: run a onceway there that speaks it"
        ));
    }
    let applied = |by: &RegionName, of: &RegionName| match by == me {
        true => health.peers.get(of).map(|peer| peer.applied.unwrap_or(0)),
        false => pong(by).and_then(|pong| pong.applied.get(&origin_of(base, of)).copied()),
    };
    for other in base.serving().filter(|other| *other != name) {
        for (by, of) in [(other, name), (name, other)] {
            match applied(by, of) {
                None => {
                    return not_yet(format!(
                        "{by} does not know {of}: restart its gateways with the files that name {of}"
                    ));
                }
                Some(0) => {
                    return not_yet(format!(
                        "no row of {of} has arrived at {by}: run `onceway store init` in both until nothing is pending"
                    ));
                }
                Some(_) => {}
            }
        }
    }
    let origin = pong(name).and_then(|pong| pong.origin.as_ref());
    if origin.is_some_and(|origin| *origin != origin_of(base, name)) {
        let should = origin_of(base, name);
        return not_yet(format!(
            "its store is not {should}: `generation` in its region file is wrong, or its store is another one"
        ));
    }
    // A region that left must return with the same store: another one has forgotten its runs.
    let beat = pong(name).and_then(|pong| pong.beat).map_or(u64::MAX, |beat| beat.seq);
    match base.members().get(name) {
        Some(member) if beat < member.mark => refused(format!(
            "region {name} was a member before and sealed heartbeat {}, its store is at {beat}: it is another one, and has to take another name",
            member.mark
        )),
        Some(_) | None => Ok(()),
    }
}

/// The origin of a region that is about to join: that of a first store.
pub fn origin_of(view: &View, name: &RegionName) -> Origin {
    view.origin(name).unwrap_or_else(|| Origin { region: name.clone(), generation: 1 })
}
