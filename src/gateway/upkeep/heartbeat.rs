//! Heartbeats, the clock of replication (docs/protocol.md#rule-29), and the approval of a boot.
//!
//! After a restart of the store no claim passes before peers say that they saw no later heartbeat.
//! A store restored from an old copy has forgotten claims (docs/protocol.md#rule-8).

use std::sync::Weak;
use std::time::Duration;

use super::applied::applied;
use super::store_gate::{NOT_APPROVED, close, open, refuse, went_back};
use crate::gateway::instance::Gateway;
use crate::gateway::telemetry::metrics::{self, observe};
use crate::ports::peers::{PeerReply, Question};
use crate::ports::store::{Boot, Gate, StoreError, Written};
use crate::ports::{Imports, KeyStore, Peers, Ports, Replica};
use crate::protocol::observed::Watch;
use crate::protocol::plant::{Check, is_disabled};
use crate::protocol::region::RegionName;
use crate::protocol::speakers;
use crate::protocol::time::Moment;

/// Heartbeats in whose time the store's counter may move on at once, and no further.
const STEP: u32 = 2;
/// Time that the approval waits for silent peers, once one has answered.
const ASK_AT_MOST: Duration = Duration::from_secs(2);
const PAGE_WITHIN: Duration = Duration::from_secs(5);
const PAGE: u32 = 500;
/// Pages of one peer, at most: whoever has more to say must not be listened to for ever.
const MOST_PAGES: usize = 100_000;

/// Writes heartbeats; after a restart of the store, works for its approval.
pub async fn beat_loop<P: Ports>(gateway: Weak<Gateway<P>>) {
    let (mut asking, mut watch) = (None, Watch::default());
    let mut first = None;
    while let Some(gateway) = gateway.upgrade() {
        let begun = gateway.now();
        // A heartbeat that any peer saw was committed before this one, so the new number must be
        // greater.
        let seen = gateway.highest_in_ring();
        let passed = watch.passed(begun, gateway.settings.timings.heartbeat * STEP);
        let beat = gateway.store().beat(Some(passed)).await;
        if !matches!(beat, Ok(Some(_))) {
            watch.lost();
        }
        let closed = match beat {
            Ok(Some(beat)) if beat.seq <= seen || gateway.health().went_back => {
                watch.lost();
                went_back(&gateway);
                Ok(())
            }
            Ok(Some(beat)) => {
                let answered = gateway.now();
                watch.heard(passed, beat.counted, beat.observed, begun, answered);
                gateway.health().beat = Some((beat.seq, begun));
                metrics::set(observe::HEARTBEAT, beat.seq as f64);
                metrics::clock_ahead(*first.get_or_insert((beat.date, begun)), (beat.date, begun));
                if gateway.store_is_open() { Ok(()) } else { reopen(&gateway).await }
            }
            Ok(None) => approve(&gateway, &mut asking).await,
            Err(error) => Err(error.to_string()),
        };
        if let Err(why) = closed {
            close(&gateway, why);
        }
        let next = begun + gateway.settings.timings.heartbeat;
        gateway.rest(next).await;
    }
}

/// Reads the gate and lets claims pass: the store answers again and its boot is approved. An error
/// says why the store is closed.
async fn reopen<P: Ports>(gateway: &Gateway<P>) -> Result<(), String> {
    if !gateway.health().peers.values().all(|peer| peer.heard.is_some() || peer.trouble.is_some()) {
        // A process that just started cannot know yet if a peer goes by another view.
        return Err("starting: not every peer has been asked yet".to_owned());
    }
    if gateway.health().beat.is_none() {
        // Claims count from what the next heartbeat may add at most, which one writes first.
        return Err("starting: the first heartbeat is not committed yet".to_owned());
    }
    let gate = gateway.store().gate().await.map_err(|error| error.to_string())?;
    if !gate.is_open() {
        return Err(NOT_APPROVED.to_owned());
    }
    open(gateway, gate);
    Ok(())
}

/// Approves the running boot, once the peers' memory shows no regression. `asking`: since when they
/// are asked about a boot. An error says why the store is closed.
async fn approve<P: Ports>(gateway: &Gateway<P>, asking: &mut Option<(Boot, Moment)>) -> Result<(), String> {
    let (gate, own) = own_state(gateway).await.map_err(|error| error.to_string())?;
    if gate.is_open() {
        return reopen(gateway).await;
    }
    let now = gateway.now();
    // Earlier answers do not count: this region may have written more since then.
    let known = asking.take().filter(|(boot, _)| *boot == gate.running);
    let (_, since) = *asking.insert(known.unwrap_or_else(|| (gate.running.clone(), now)));
    let view = gateway.newest_view(&gate);
    let peers = gateway.health().peers.keys().cloned().collect();
    let vouchers = speakers::vouchers(&peers, &view);
    let answers = gateway.answers_since(since, &vouchers);
    if answers.highest > own {
        // Without the number: the next peer may have seen a later one, and the text would count as
        // another reason.
        let why = format!(
            "the store went back: it holds heartbeat {own} of this region, and a later one was seen; it was restored from an old copy, has forgotten claims and must be rebuilt from its peers"
        );
        refuse(gateway, why);
        return Ok(());
    }
    if answers.knowing == 0 && answers.silent > 0 {
        return Err("the store restarted; waiting for a peer that remembers this region".to_owned());
    }
    if answers.silent > 0 && now.since(since) < ASK_AT_MOST {
        return Err(format!("the store restarted; {} peers have not answered yet", answers.silent));
    }
    let needed = answers_needed(&gate, answers.knowing + answers.silent);
    if answers.knowing < needed {
        return Err(format!(
            "the store restarted, or is new, restored or promoted: {needed} peers must say what they saw and heard of this region, {} did",
            answers.knowing
        ));
    }
    let is_lost = |name: &RegionName| view.lost().any(|(lost, _)| lost == name);
    if gate.approved.is_some() && !only_restarted(&gate) {
        regain(gateway, vouchers.iter().filter(|name| !is_lost(name))).await?;
    }
    let approved = gateway.store().approve(gate.version, &gate.running).await;
    if approved.map_err(|error| error.to_string())? == Written::Done {
        tracing::info!(heartbeat = own, knowing = answers.knowing, "approved the store's boot");
    }
    reopen(gateway).await
}

/// Number of peers that must answer before a boot is approved (docs/protocol.md#rule-8). A server
/// that only restarted has lost nothing: one is enough. Any other store may be an old copy, and the
/// one peer behind as well. Then each majority that ever acted must have a member among them.
fn answers_needed(gate: &Gate, peers: usize) -> usize {
    if only_restarted(gate) {
        return peers.min(1);
    }
    let members = peers + 1;
    let majority = members / 2 + 1;
    (members - majority + 1).min(peers)
}

/// True if the running server is the approved one, restarted over the same timeline.
pub fn only_restarted(gate: &Gate) -> bool {
    let same = |approved: &Boot| {
        (approved.system, approved.timeline) == (gate.running.system, gate.running.timeline)
    };
    gate.approved.as_ref().is_some_and(same)
}

pub async fn own_state<P: Ports>(gateway: &Gateway<P>) -> Result<(Gate, u64), StoreError> {
    let gate = gateway.store().gate().await?;
    Ok((gate, applied(gateway.store()).await?.written(&gateway.origin)))
}

/// Asks each of these peers for own rows that a promoted standby may lack, also if it has the
/// newest heartbeat (docs/protocol.md#rule-8), and takes them in. An error says who did not answer.
async fn regain<'a, P: Ports>(
    gateway: &Gateway<P>,
    peers: impl Iterator<Item = &'a RegionName>,
) -> Result<(), String> {
    if is_disabled(Check::LatestAsked) {
        return Ok(());
    }
    for peer in peers {
        let rows = from_peer(gateway, peer).await.map_err(|why| {
            format!("the store is restored or promoted: {peer} must say what this store may lack: {why}")
        })?;
        tracing::info!(%peer, rows, "asked what this restored or promoted store may lack");
    }
    Ok(())
}

async fn from_peer<P: Ports>(gateway: &Gateway<P>, peer: &RegionName) -> Result<usize, String> {
    let (mut from, mut all) = (0, 0);
    for _ in 0..MOST_PAGES {
        let question = Question::Latest { origin: gateway.origin.clone(), from, most: PAGE };
        let (rows, next) = match gateway.ports.peers().ask(peer, question, PAGE_WITHIN).await {
            Ok(PeerReply::Latest { rows, next }) => (rows, next),
            Ok(PeerReply::Refused(why)) => return Err(why),
            Ok(other) => return Err(format!("it answered {other:?}")),
            Err(error) => return Err(error.to_string()),
        };
        all += rows.len();
        match gateway.store().restore(&rows).await.map_err(|error| error.to_string())? {
            Written::Done => {}
            // Another process of this region approved the boot, after it had asked.
            Written::Lost | Written::GateMoved => return Ok(all),
        }
        match next {
            None => return Ok(all),
            Some(next) if next > from => from = next,
            Some(_) => return Err("its pages do not go on".to_owned()),
        }
    }
    Err("its pages do not end".to_owned())
}
