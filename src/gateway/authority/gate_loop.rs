//! The gate's loop: follows the newest view, measures windows, and opens gained keys.
//!
//! `protocol::{opening, window}` decide. Several processes may run it: each write compares the
//! gate's version, and nothing is opened by facts older than its last write.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::moves;
use super::register::learn::{self, Follows};
use super::register::propose;
use super::state::Importing;
use crate::gateway::instance::{Gateway, Peer};
use crate::gateway::telemetry::metrics;
use crate::gateway::upkeep::applied::applied;
use crate::gateway::upkeep::doubles;
use crate::ports::authority::CopiedRow;
use crate::ports::peers::{PeerReply, Question};
use crate::ports::store::{GateVersion, PeerMemory, StoreError, Written};
use crate::ports::{Authority as _, Escrows, Imports, Peers, Ports, Replica};
use crate::protocol::authority::GateState;
use crate::protocol::key::KeyId;
use crate::protocol::lifetime::Retention;
use crate::protocol::opening::{self, Facts, Hindrance};
use crate::protocol::plant::{Check, is_disabled};
use crate::protocol::region::{Origin, RegionName};
use crate::protocol::view::View;
use crate::protocol::window::Window;

/// Rows in one page of an import, and escrow rows in one conversion.
const PAGE: u32 = 500;
/// Pages of one import in one look: between looks the newest view is followed.
const PAGES: usize = 16;
const PAGE_WITHIN: Duration = Duration::from_secs(5);
/// Pause between two looks while keys wait to be opened.
const CLOSELY: Duration = Duration::from_millis(20);

pub async fn gate_loop<P: Ports>(gateway: Weak<Gateway<P>>) {
    while let Some(strong) = gateway.upgrade() {
        let begun = strong.now();
        let busy = look(&strong).await;
        let poll = strong.settings.timings.poll;
        // What is missing may arrive at any moment, unless a window has long to run or an operator
        // must act.
        let soon =
            |missing: &Hindrance| !missing.needs_operator() && missing.left().is_none_or(|left| left <= poll);
        let soon = busy && strong.snapshot().hindrances.iter().all(soon);
        let pause = if soon { CLOSELY } else { poll };
        strong.rest_or(|wakes| &wakes.gate, begun + pause).await;
    }
}

/// One look. True if something is still missing.
async fn look<P: Ports>(gateway: &Arc<Gateway<P>>) -> bool {
    if let Some(peer) = ahead(gateway) {
        let before = gateway.view().epoch();
        learn::from_peer(gateway, &peer).await;
        let in_vain = gateway.view().epoch() == before;
        gateway.authority.gathered.lock().doubt(&peer, in_vain, gateway.now());
    }
    if !gateway.store_is_open() {
        return false;
    }
    if !gateway.authority.gathered.lock().is_recalled(gateway.now()) {
        recall(gateway).await;
    }
    learn::founding(gateway).await;
    match learn::adopt(gateway).await {
        Follows::Newest => {}
        Follows::NotYet => return true,
        Follows::Unread => return false,
    }
    let Some((version, state)) = gateway.gate_state() else { return false };
    measure(gateway, &state);
    moves::watch_pending(gateway, &state);
    if state.is_open() {
        opened(gateway, &state.view);
        return false;
    }
    gateway.authority.change(|known, _| known.closed());
    open(gateway, version, &state).await;
    true
}

/// A peer that reports a newer view. Peers whose views were not confirmed lately are skipped.
fn ahead<P: Ports>(gateway: &Gateway<P>) -> Option<RegionName> {
    let (epoch, now) = (gateway.view().epoch(), gateway.now());
    let health = gateway.health();
    let newer = |peer: &Peer| peer.pong.as_ref().is_some_and(|pong| pong.epoch > epoch);
    let gathered = gateway.authority.gathered.lock();
    let mut peers = health.peers.iter();
    peers.find(|(name, peer)| newer(peer) && !gathered.is_doubted(name, now)).map(|(name, _)| name.clone())
}

async fn recall<P: Ports>(gateway: &Gateway<P>) {
    match gateway.store().views().await {
        Ok(kept) => {
            let life = gateway.agreed_life();
            gateway.authority.change(|known, _| known.recall(kept, |ago| Retention::For(ago) > life));
            gateway.authority.gathered.lock().recalled = Some(gateway.now());
        }
        Err(error) => tracing::warn!(%error, "the views that are kept could not be read"),
    }
}

/// Begins a window when the loss is durably adopted here, and ends it with the loss.
fn measure<P: Ports>(gateway: &Gateway<P>, state: &GateState) {
    let now = gateway.now();
    let health = gateway.health();
    let Some((remembered, _)) = &health.remembered else { return };
    let mut gathered = gateway.authority.gathered.lock();
    let lost: BTreeMap<Origin, u64> = state.view.losses().collect();
    let retired = &state.view.retired;
    gathered.windows.retain(|origin, window| lost.get(origin) == Some(&window.at()));
    gathered.converted.retain(|origin| lost.contains_key(origin));
    if gathered.frontiers_under != state.view.epoch() {
        gathered.frontiers.clear();
        gathered.frontiers_under = state.view.epoch();
    }
    gathered.frontiers.retain(|(_, origin), _| lost.contains_key(origin) || state.view.is_gone(origin));
    for (origin, at) in lost.into_iter().filter(|(origin, _)| !retired.contains_key(origin)) {
        let peer = health.peers.get(&origin.region).filter(|peer| peer.origin.as_ref() == Some(&origin));
        let applied = peer.and_then(|peer| peer.applied).unwrap_or(0);
        if !gathered.windows.contains_key(&origin) {
            // The outage itself is not lag: the lag at the last contact counts.
            let lag = peer.and_then(|peer| peer.lag.maximum(peer.heard.unwrap_or(now)));
            let lag = lag.or_else(|| remembered.get(&origin).and_then(|past| past.lag));
            tracing::info!(%origin, at, ?lag, applied, "the window of a lost store begins");
            gathered.converted.remove(&origin);
            gathered.frontiers.retain(|(_, lost), _| *lost != origin);
            let begun = match is_disabled(Check::WindowBegins) {
                true => peer.and_then(|peer| peer.heard).unwrap_or(now),
                false => now,
            };
            gathered.windows.insert(origin.clone(), Window::begin(at, lag, applied, begun));
        }
        if let Some(window) = gathered.windows.get_mut(&origin) {
            window.saw(applied, now);
        }
    }
}

/// Finds the hindrances, works on them, and opens the gate when none is left.
async fn open<P: Ports>(gateway: &Arc<Gateway<P>>, version: GateVersion, state: &GateState) {
    let Ok(missing) = missing(gateway, state).await else { return };
    show(gateway, &state.view, missing.clone());
    if missing.is_empty() {
        // Compares with the version that was read before all checks. A store that restarted
        // meanwhile may have lost newly arrived rows, and its approval changed the version.
        match gateway.store().set_gate(version, &state.open()).await {
            Ok(Written::Done) => {
                tracing::info!(epoch = state.view.epoch(), "opened the keys that were gained");
                learn::adopt(gateway).await;
                opened(gateway, &state.view);
            }
            Ok(Written::Lost | Written::GateMoved) => {}
            Err(error) => tracing::warn!(%error, "the gate could not be opened yet"),
        }
        return;
    }
    for hindrance in missing {
        let done = match &hindrance {
            Hindrance::Escrow(origin) => convert(gateway, origin).await,
            Hindrance::NotTold { origin, by } => {
                let at = state.view.losses().find(|(lost, _)| lost == origin).map_or(0, |(_, at)| at);
                let answered = frontier_at(gateway, by, origin, at).await;
                answered.map(|frontier| {
                    let of = (by.clone(), origin.clone());
                    gateway.authority.gathered.lock().frontiers.insert(of, frontier);
                })
            }
            Hindrance::Import { origin, from, upto } => import(gateway, version, origin, from, *upto).await,
            Hindrance::NotCovered { .. }
            | Hindrance::Window { .. }
            | Hindrance::Beyond { .. }
            | Hindrance::Unmeasured { .. }
            | Hindrance::Gap { .. }
            | Hindrance::Forgotten { .. }
            | Hindrance::LeftRing { .. } => Ok(()),
        };
        if let Err(why) = done {
            tracing::debug!(?hindrance, why, "what was gained cannot be opened yet");
        }
    }
}

async fn missing<P: Ports>(gateway: &Gateway<P>, state: &GateState) -> Result<Vec<Hindrance>, StoreError> {
    let applied = applied(gateway.store()).await?.rows;
    let now = gateway.now();
    let rule = gateway.settings.failover.window;
    let known = gateway.snapshot();
    let keepers = opening::keepers(&state.view, &known.views, &known.applied.epochs);
    let gathered = gateway.authority.gathered.lock();
    let standing = |(origin, window): (&Origin, &Window)| (origin.clone(), window.standing(&rule, now));
    let windows = gathered.windows.iter().map(standing).collect();
    Ok(opening::hindrances(&Facts {
        view: &state.view,
        me: &gateway.origin,
        applied: &applied,
        windows: &windows,
        frontiers: &gathered.frontiers,
        waived: &state.waived,
        converted: &gathered.converted,
        keepers: &keepers,
    }))
}

/// Turns the escrow rows of a lost store into own, public records (docs/protocol.md#rule-39).
pub async fn convert<P: Ports>(gateway: &Arc<Gateway<P>>, origin: &Origin) -> Result<(), String> {
    let mut all = 0;
    loop {
        match gateway.store().convert(origin, PAGE).await.map_err(|error| error.to_string())? {
            0 => break,
            some => all += some,
        }
    }
    if all > 0 {
        tracing::warn!(%origin, all, "escrow rows of a lost store are in doubt here now");
    }
    gateway.authority.gathered.lock().converted.insert(origin.clone());
    Ok(())
}

/// Another region's copy of a store, once it has adopted the view of epoch `at`.
pub async fn frontier_at<P: Ports>(
    gateway: &Arc<Gateway<P>>,
    by: &RegionName,
    origin: &Origin,
    at: u64,
) -> Result<opening::Frontier, String> {
    if *by == gateway.settings.me {
        return gateway.frontier_of(origin, at).await;
    }
    let question = Question::Frontier { origin: origin.clone(), at };
    match gateway.ports.peers().ask(by, question, propose::WITHIN).await {
        Ok(PeerReply::Frontier(frontier)) => Ok(frontier),
        Ok(PeerReply::Refused(why)) => Err(why),
        Ok(other) => Err(format!("{by} answered {other:?}")),
        Err(error) => Err(error.to_string()),
    }
}

/// Fetches rows of a lost or replaced store from a survivor that has rows which may be missing here
/// (docs/protocol.md#rule-33). Returns after some pages; the next look goes on.
async fn import<P: Ports>(
    gateway: &Arc<Gateway<P>>,
    version: GateVersion,
    origin: &Origin,
    from: &RegionName,
    upto: u64,
) -> Result<(), String> {
    let store = gateway.store();
    let begun = gateway.authority.gathered.lock().imports.remove(origin);
    let same = |begun: &Importing| (begun.version, &begun.from, begun.upto) == (version, from, upto);
    let begun = begun.filter(same);
    let (mut after, mut all) = begun.map_or((None, 0), |begun| (Some(begun.after), begun.rows));
    for _ in 0..PAGES {
        let question = Question::Rows { origin: origin.clone(), after: after.clone(), most: PAGE };
        let rows: Vec<CopiedRow> = match gateway.ports.peers().ask(from, question, PAGE_WITHIN).await {
            Ok(PeerReply::Rows(rows)) => rows,
            Ok(other) => return Err(format!("{from} answered {other:?}")),
            Err(error) => return Err(error.to_string()),
        };
        let ids: Vec<KeyId> = rows.iter().map(|row| row.id.clone()).collect();
        if !after.iter().chain(&ids).is_sorted_by(|one, next| one < next) {
            return Err(format!("the pages of {from} do not go on"));
        }
        store.import(origin, &rows).await.map_err(|error| error.to_string())?;
        doubles::look_at(gateway, &ids).await;
        all += rows.len();
        // A page may be short because its rows are large.
        let Some(last) = ids.into_iter().next_back() else {
            if gateway.gate_state().is_none_or(|(now, _)| now != version) {
                return Err("the gate has moved since the import began".to_owned());
            }
            // Another gateway of the region may remember a larger lag than this one measured.
            let memory = PeerMemory { origin: origin.clone(), applied: 0, lag: None, imported: upto };
            store.remember(&[memory]).await.map_err(|error| error.to_string())?;
            tracing::info!(%origin, %from, upto, all, "imported what another region has of a lost or replaced store");
            return Ok(());
        };
        after = Some(last);
    }
    if let Some(after) = after {
        let going_on = Importing { version, from: from.clone(), upto, after, rows: all };
        gateway.authority.gathered.lock().imports.insert(origin.clone(), going_on);
    }
    Ok(())
}

fn opened<P: Ports>(gateway: &Gateway<P>, view: &View) {
    let now = gateway.now();
    gateway.authority.change(|known, _| known.opened(view, now));
    show(gateway, view, Vec::new());
}

/// Publishes the hindrances, with the epoch of the view that they were judged under.
fn show<P: Ports>(gateway: &Gateway<P>, view: &View, missing: Vec<Hindrance>) {
    metrics::hindrances(&missing);
    let kinds = |all: &[Hindrance]| -> Vec<_> { all.iter().map(std::mem::discriminant).collect() };
    if kinds(&gateway.snapshot().hindrances) != kinds(&missing) {
        tracing::info!(?missing, "what keeps gained keys from starting has changed");
    }
    gateway.authority.change(|known, _| known.judge(view, missing));
}
