//! The sweep: finds abandoned claims and doubts that no client asks about, and asks the upstream.
//!
//! It runs nothing, and judges no hold by a clock of its own.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, Weak};
use std::time::Duration;

use crate::gateway::instance::Gateway;
use crate::gateway::policy::route::Policy;
use crate::gateway::request::attempt::persist::{self, Fact};
use crate::gateway::request::attempt::recover::{in_place_of, stand_in};
use crate::gateway::telemetry::metrics::{self, observe};
use crate::ports::store::{Attempt, GateVersion};
use crate::ports::upkeep::{OpenAttempt, Place, Ruling};
use crate::ports::{KeyStore, Ports, Upkeep};
use crate::protocol::decide::{Conclusion, Word, conclude, rule};
use crate::protocol::key::KeyId;
use crate::protocol::record::{Basis, Reading, Recovery, Row, State, Token};
use crate::protocol::snapshot::Here;
use crate::protocol::time::Moment;

const PAGE: u32 = 200;
/// Looks at claims in one sweep. After a start all claims are looked at once, over many sweeps.
const STRETCHES: usize = 50;
/// Attempts asked about in one sweep: a silent upstream must not delay others for long.
const QUESTIONS: usize = 32;
const STRETCH: u32 = 2_000;
const FOREIGN_LOOKS: usize = 25;
const AT_A_TIME: usize = 8;
/// Longest pause between two questions about one attempt.
const RAREST: Duration = Duration::from_secs(300);

/// Sweeps again and again. An abandoned claim (its hold is over) is stored as in doubt, which puts
/// it on the operator's list. If its rule is `probe`, the upstream is asked, ever more rarely.
/// Happened: settled. Did not happen, and surely over: released. Under other rules it is listed
/// only: its request is not stored, so nothing runs without a client. Other regions' open attempts
/// under keys owned here get a stand-in.
pub async fn sweep_loop<P: Ports>(gateway: Weak<Gateway<P>>) {
    let mut sweep = Sweep::default();
    while let Some(gateway) = gateway.upgrade() {
        let begun = gateway.now();
        let version = gateway.gate_state().map(|(version, _)| version);
        if sweep.under != version {
            // Another boot may have gone back in the order of the claims: look at all of them.
            (sweep.under, sweep.place) = (version, None);
        }
        if gateway.store_is_open() && !gateway.is_stopping() {
            sweep.abandoned(&gateway).await;
            sweep.left.look(&gateway).await;
            sweep.listed(&gateway).await;
        }
        let next = begun + gateway.settings.timings.sweep;
        gateway.rest(next).await;
    }
}

#[derive(Default)]
struct Sweep {
    /// The gate's version under which the place is one.
    under: Option<GateVersion>,
    /// Place in the order of claims up to which they were looked at.
    place: Option<Place>,
    /// Claims that still ran at the last look, and the moment when their hold will be over.
    running: BTreeMap<KeyId, Moment>,
    left: Orphans,
    /// Key on the list up to which it was looked at.
    after: Option<KeyId>,
    /// Attempts that were asked about and are still in doubt.
    asked: BTreeMap<KeyId, Asked>,
}

#[derive(Clone, Copy)]
struct Asked {
    token: Token,
    next: Moment,
    pause: Duration,
}

impl Sweep {
    async fn abandoned<P: Ports>(&mut self, gateway: &Gateway<P>) {
        let store = gateway.store();
        let youngest = gateway.live().routes.policies().map(|policy| policy.hold).min();
        let Some(youngest) = youngest else { return };
        for _ in 0..STRETCHES {
            let page = metrics::upkeep("sweep", store.claims(self.place, youngest, STRETCH)).await;
            let Ok(page) = page else { return };
            let now = gateway.now();
            for claim in page.claims {
                if let State::Claimed { left, .. } = claim.row.state {
                    self.running.insert(claim.id, now + left);
                }
            }
            self.place = page.through.or(self.place);
            if !page.more {
                break;
            }
        }
        let now = gateway.now();
        let over = self.running.iter().filter(|(_, over)| **over <= now).map(|(id, _)| id.clone());
        let ids: Vec<KeyId> = over.take(PAGE as usize).collect();
        let Ok(found) = store.look_up(&ids).await else { return };
        for (id, rows) in ids.into_iter().zip(found) {
            self.running.remove(&id);
            let Some(own) = rows.into_iter().find(|row| row.origin == gateway.origin) else { continue };
            let State::Claimed { left, .. } = own.state else { continue };
            if !left.is_zero() {
                self.running.insert(id, gateway.now() + left);
                continue;
            }
            let attempt = Attempt { id: id.clone(), token: own.token, nonce: own.nonce };
            match metrics::upkeep("doubt", store.doubt(&attempt, None)).await {
                Ok(_) => {
                    metrics::count_by(observe::SWEPT, "result", "abandoned");
                    tracing::warn!(key = %id.digest(), token = %own.token, "a claim was abandoned: its hold is over, the key is in doubt");
                }
                Err(_) => {
                    self.running.insert(id, gateway.now());
                }
            }
        }
    }

    /// Looks at the list, and asks about the next keys on it.
    async fn listed<P: Ports>(&mut self, gateway: &Arc<Gateway<P>>) {
        let store = gateway.store();
        if let Ok(count) = metrics::upkeep("sweep", store.unlist()).await {
            metrics::set(observe::DOUBTS, count as f64);
            *gateway.doubted.lock().unwrap_or_else(PoisonError::into_inner) = Some(count);
        }
        let page = metrics::upkeep("sweep", store.doubts(self.after.as_ref(), PAGE)).await;
        let Ok(page) = page else { return };
        self.after = page.last().filter(|_| page.len() >= PAGE as usize).map(|last| last.open.id.clone());
        let is_here = |open: &OpenAttempt| {
            open.row.origin == gateway.origin || gateway.view().owner(&open.id) == Some(&gateway.settings.me)
        };
        let (here, gone): (Vec<_>, Vec<_>) = page.into_iter().map(|listed| listed.open).partition(is_here);
        let gone: Vec<KeyId> = gone.into_iter().map(|open| open.id).collect();
        if !gone.is_empty() {
            // Their owner has them on its list. A failure is counted, and the next round tries
            // again.
            let _ = metrics::upkeep("sweep", store.delist(&gone)).await;
        }
        let now = gateway.now();
        let due = here.into_iter().filter(|open| {
            let asked = self.asked.get(&open.id).filter(|asked| asked.token == open.row.token);
            asked.is_none_or(|asked| asked.next <= now)
        });
        let due = due.filter(|open| is_probed(gateway, open)).take(QUESTIONS).collect();
        self.ask(gateway, due).await;
        // Attempts that have not come up for so long are off the list.
        let now = gateway.now();
        self.asked.retain(|_, asked| now.since(asked.next) < RAREST * 2);
    }

    async fn ask<P: Ports>(&mut self, gateway: &Arc<Gateway<P>>, due: Vec<OpenAttempt>) {
        for some in due.chunks(AT_A_TIME) {
            let mut tasks = Vec::new();
            for open in some {
                let (gateway, open) = (gateway.clone(), open.clone());
                tasks.push(tokio::spawn(async move { recover(&gateway, open).await }));
            }
            for (task, open) in tasks.into_iter().zip(some) {
                let Ok(Some(at_least)) = task.await else {
                    self.asked.remove(&open.id);
                    continue;
                };
                let period = gateway.settings.timings.sweep;
                let before = self.asked.get(&open.id).filter(|asked| asked.token == open.row.token);
                let pause = before.map_or(period, |asked| (asked.pause * 2).min(RAREST));
                let next = gateway.now() + at_least.unwrap_or(pause);
                self.asked.insert(open.id.clone(), Asked { token: open.row.token, next, pause });
            }
        }
    }
}

/// The search for other regions' open attempts under keys that this region owns: no other region
/// ends them. Each process looks once per view, when all gained keys may start: by then all rows of
/// former owners have arrived. They go on the region's list.
#[derive(Default)]
struct Orphans {
    /// The epoch of the view that is searched under; 0: none so far.
    epoch: u64,
    after: Option<KeyId>,
    done: bool,
}

impl Orphans {
    async fn look<P: Ports>(&mut self, gateway: &Gateway<P>) {
        let Some((_, state)) = gateway.gate_state() else { return };
        // Before the gate is open, rows may be on their way, and also the answers of rows that are
        // here.
        if !state.is_open() {
            return;
        }
        if self.epoch != state.view.epoch() {
            *self = Self { epoch: state.view.epoch(), ..Self::default() };
        }
        let store = gateway.store();
        for _ in 0..FOREIGN_LOOKS {
            if self.done {
                return;
            }
            let page = metrics::upkeep("sweep", store.foreign(self.after.as_ref(), STRETCH)).await;
            let Ok(page) = page else { return };
            let mut ours = page.open;
            ours.retain(|id| state.view.owner(id) == Some(&gateway.settings.me));
            if !ours.is_empty() && metrics::upkeep("sweep", store.enlist(&ours)).await.is_err() {
                return;
            }
            self.after = page.through.or(self.after.take());
            self.done = !page.more;
        }
    }
}

/// True if the attempt's rule is to ask, and its path says whom, in one way only.
fn is_probed<P: Ports>(gateway: &Gateway<P>, open: &OpenAttempt) -> bool {
    let asks = || gateway.live().routes.of_path(&open.path).is_some_and(|policy| policy.probe.is_some());
    open.row.recovery == Recovery::Probe && asks()
}

/// Asks about the attempts of one key and stores the outcome. `None` if there is nothing more to
/// ask, else the time after which to ask again, if known.
async fn recover<P: Ports>(gateway: &Arc<Gateway<P>>, open: OpenAttempt) -> Option<Option<Duration>> {
    let live = gateway.live();
    let policy = live.routes.of_path(&open.path)?;
    // Nothing is recovered before the key may run here: its settlement may be on the way.
    let Here::Run(_) = gateway.here(&open.id) else { return Some(None) };
    let rows = gateway.rows(&open.id).await.ok()?;
    let Reading::InDoubt(row, beside) = gateway.read(rows) else { return None };
    if rule(&row, &beside.rows) != Recovery::Probe {
        return None;
    }
    let rows: Vec<Row> = std::iter::once(row).chain(beside.rows).collect();
    // Another attempt was made since the key was listed: the next round has that one.
    if !rows.iter().any(|row| row.origin == open.row.origin && row.token == open.row.token) {
        return Some(None);
    }
    let (said, over_in) = ask_all(gateway, policy, &open, &rows).await;
    let Some(end) = conclude(&rows, &said, &gateway.origin) else { return Some(over_in) };
    let result = if let Conclusion::Happened(..) = end { "settled" } else { "released" };
    if ended(gateway, policy, &open, end, beside.basis).await {
        metrics::count_by(observe::SWEPT, "result", result);
        tracing::info!(key = %open.id.digest(), token = %end.row().token, result, "a key in doubt was recovered without its client");
    }
    Some(None)
}

/// Stores a known outcome: in the own row, or by a stand-in. If not, the key stays on the list.
async fn ended<P: Ports>(
    gateway: &Arc<Gateway<P>>,
    policy: &Policy,
    open: &OpenAttempt,
    end: Conclusion<'_>,
    basis: Basis,
) -> bool {
    let row = end.row();
    let answer = match end {
        Conclusion::Happened(_, answer) => Some(answer),
        Conclusion::OwnNot(_) | Conclusion::None(_) => None,
    };
    if row.origin == gateway.origin && !matches!(end, Conclusion::None(_)) {
        let fact = answer.map_or(Fact::Released, |answer| Fact::Settled(answer.clone(), row.request_id));
        let attempt = Attempt { id: open.id.clone(), token: row.token, nonce: row.nonce };
        let stored = persist::store(gateway, &open.route, policy.hold, attempt, fact).await;
        return stored == persist::Stored::Yes;
    }
    let ruling = answer.map_or(Ruling::Released, |answer| Ruling::Settled((**answer).clone()));
    let terms = in_place_of(gateway, row, policy, open.route.clone(), open.path.clone());
    stand_in(gateway, &open.id, terms, basis, &ruling, None).await.is_ok()
}

/// Asks about each attempt in doubt, newest first, until one happened. Also returns the time after
/// which to ask again, if known.
async fn ask_all<P: Ports>(
    gateway: &Gateway<P>,
    policy: &Policy,
    open: &OpenAttempt,
    rows: &[Row],
) -> (Vec<Word>, Option<Duration>) {
    let (mut said, mut over_in) = (Vec::new(), None);
    for row in rows {
        let (word, over) = persist::question(gateway, policy, &open.id, row, &open.path).await;
        over_in = over_in.max(over);
        let happened = matches!(word, Word::Happened(_));
        said.push(word);
        if happened {
            break;
        }
    }
    (said, over_in)
}
