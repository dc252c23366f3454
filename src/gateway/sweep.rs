//! The sweep: finds claims that were abandoned and keys in doubt that no client asks about, and asks the upstream itself.
//!
//! An abandoned claim (its hold is over) is stored as in doubt, which puts it on the operator's list. On routes whose recovery is `probe`
//! the upstream is asked: happened → settled; did not happen, and surely over → released; else it stays and is asked again,
//! ever more rarely. On other routes it is listed only: its request is not stored, so nothing runs without a client (an accepted
//! one is its worker's). So a claim is listed, and first asked about, within its hold and one period. What other regions left open under keys
//! that are owned here is ended the same way, by an own record in its place. Neighbours: [`super::comb`] finds that,
//! [`super::recover`] asks, [`super::outcome`] stores, `ports::upkeep` lists. It must not run anything, and must not judge holds
//! by a suspect clock.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::authority::Here;
use super::claim::lifetime;
use super::comb::Comb;
use super::ending::read;
use super::outcome::{self, Fact};
use super::recover::{self, Said};
use super::route::Policy;
use super::stand_in::{self, For};
use super::{Gateway, metrics};
use crate::ports::store::Attempt;
use crate::ports::upkeep::{OpenAttempt, Place};
use crate::ports::{Clock, KeyStore, Ports, Upkeep};
use crate::protocol::decide::{Basis, Recovery, basis, doubt};
use crate::protocol::key::KeyId;
use crate::protocol::record::{Answer, Nonce, Reading, Row, State, Token};
use crate::protocol::time::Moment;

/// Rows in one look.
const PAGE: u32 = 200;
/// Looks at claims in one sweep: after a start all claims are looked at once, over many sweeps.
const STRETCHES: usize = 50;
/// Attempts asked about in one sweep, so that an upstream that is silent holds up no other sweep for long.
const QUESTIONS: usize = 32;
/// Claims in one look.
const STRETCH: u32 = 2_000;
/// Questions to the upstream at a time.
const AT_A_TIME: usize = 8;
/// The longest between two questions about one attempt.
const RAREST: Duration = Duration::from_secs(300);

/// Starts the sweep. It ends when the gateway is dropped.
pub(super) fn start<P: Ports>(gateway: &Arc<Gateway<P>>) {
    tokio::spawn(sweep_loop(Arc::downgrade(gateway)));
}

async fn sweep_loop<P: Ports>(gateway: Weak<Gateway<P>>) {
    let mut sweep = Sweep::default();
    while let Some(gateway) = gateway.upgrade() {
        let begun = gateway.ports.clock().now();
        let trusted = gateway.clock_suspect_for().is_none();
        if !trusted {
            // The order of claims is by the clock that stepped: look at all of them again.
            sweep.place = None;
        }
        if trusted && gateway.store_is_open() && !gateway.is_stopping() {
            sweep.abandoned(&gateway).await;
            sweep.left.look(&gateway).await;
            sweep.listed(&gateway).await;
        }
        let next = begun + gateway.settings.timings.sweep;
        gateway.rest(next).await;
    }
}

/// What one sweep leaves to the next.
#[derive(Default)]
struct Sweep {
    /// How far the claims were looked at, in their order.
    place: Option<Place>,
    /// Claims that were still running when they were looked at, and when their hold will be over.
    running: BTreeMap<KeyId, Moment>,
    /// What other regions left.
    left: Comb,
    /// How far the list was looked at.
    after: Option<KeyId>,
    /// Who was asked about and is in doubt still.
    asked: BTreeMap<KeyId, Asked>,
}

/// The questions about one attempt so far.
#[derive(Clone, Copy)]
struct Asked {
    token: Token,
    next: Moment,
    pause: Duration,
}

impl Sweep {
    /// Stores abandoned claims as in doubt.
    async fn abandoned<P: Ports>(&mut self, gateway: &Gateway<P>) {
        let store = gateway.ports.store();
        let youngest = gateway.live().routes.policies().map(|policy| policy.hold).min();
        let Some(youngest) = youngest else { return };
        for _ in 0..STRETCHES {
            let Ok(page) = metrics::upkeep("sweep", store.claims(self.place, youngest, STRETCH)).await else {
                return;
            };
            let now = gateway.ports.clock().now();
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
        let now = gateway.ports.clock().now();
        let over = self.running.iter().filter(|(_, over)| **over <= now).map(|(id, _)| id.clone());
        let ids: Vec<KeyId> = over.take(PAGE as usize).collect();
        let Ok(found) = store.look_up(&ids).await else { return };
        for (id, mut rows) in ids.into_iter().zip(found) {
            gateway.distrust(&mut rows);
            self.running.remove(&id);
            let Some(own) = rows.into_iter().find(|row| row.origin == gateway.origin) else { continue };
            let State::Claimed { left, .. } = own.state else { continue };
            if !left.is_zero() {
                self.running.insert(id, gateway.ports.clock().now() + left);
                continue;
            }
            let open = OpenAttempt { id: id.clone(), row: own, route: "".into(), path: String::new() };
            match metrics::upkeep("doubt", store.doubt(&open.attempt(), None)).await {
                Ok(_) => {
                    metrics::swept("abandoned");
                    tracing::warn!(key = %id.digest(), token = %open.row.token, "a claim was abandoned: its hold is over, the key is in doubt");
                }
                Err(_) => {
                    self.running.insert(id, gateway.ports.clock().now());
                }
            }
        }
    }

    /// Looks at the list, and asks about the next keys on it.
    async fn listed<P: Ports>(&mut self, gateway: &Arc<Gateway<P>>) {
        let store = gateway.ports.store();
        if let Ok(count) = metrics::upkeep("sweep", store.unlist()).await {
            metrics::doubts(count);
        }
        let page = metrics::upkeep("sweep", store.doubts(self.after.as_ref(), PAGE)).await;
        let Ok(page) = page else { return };
        self.after = page.last().filter(|_| page.len() >= PAGE as usize).map(|last| last.open.id.clone());
        let (here, gone): (Vec<OpenAttempt>, Vec<OpenAttempt>) =
            page.into_iter().map(|listed| listed.open).partition(|open| is_here(gateway, open));
        let gone: Vec<KeyId> = gone.into_iter().map(|open| open.id).collect();
        if !gone.is_empty() {
            // Whoever owns them now has them on its list; a failure is counted, and the next round tries again.
            let _ = metrics::upkeep("sweep", store.delist(&gone)).await;
        }
        let now = gateway.ports.clock().now();
        let due = here.into_iter().filter(|open| {
            let asked = self.asked.get(&open.id).filter(|asked| asked.token == open.row.token);
            asked.is_none_or(|asked| asked.next <= now)
        });
        let due = due.filter(|open| is_probed(gateway, open)).take(QUESTIONS).collect();
        self.ask(gateway, due).await;
        // What has not come up for so long is off the list.
        let now = gateway.ports.clock().now();
        self.asked.retain(|_, asked| now.since(asked.next) < RAREST * 2);
    }

    /// Asks about these attempts, a few at a time.
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
                let next = gateway.ports.clock().now() + at_least.unwrap_or(pause);
                self.asked.insert(open.id.clone(), Asked { token: open.row.token, next, pause });
            }
        }
    }
}

fn is_probed<P: Ports>(gateway: &Gateway<P>, open: &OpenAttempt) -> bool {
    match gateway.live().routes.policy(&open.route).map(|policy| policy.recovery) {
        Some(Recovery::Probe) => true,
        // A route that is gone says nothing about its keys: they are listed.
        Some(Recovery::Rerun { .. } | Recovery::Park) | None => false,
    }
}

/// Whether a listed key is this region's to list: its own attempt, or another region's under a key that it owns.
fn is_here<P: Ports>(gateway: &Gateway<P>, open: &OpenAttempt) -> bool {
    open.row.origin == gateway.origin || gateway.view().owner(&open.id) == Some(&gateway.settings.me)
}

/// What the upstream says of all attempts of a key that are in doubt.
enum Learned {
    /// This one happened.
    Happened(Box<Row>, Arc<Answer>),
    /// None of them happened.
    None,
    /// The own one did not, and of another one that is not known.
    OwnNot(Box<Row>),
    /// Not known; and when it may be, if that can be said.
    Later(Option<Duration>),
}

/// Asks about the attempts of one key and stores what is told. `None` if there is nothing more to ask; else whether a time is known at which
/// it makes sense to ask again.
async fn recover<P: Ports>(gateway: &Arc<Gateway<P>>, open: OpenAttempt) -> Option<Option<Duration>> {
    let live = gateway.live();
    let policy = live.routes.policy(&open.route)?;
    // Nothing is recovered before the key may run here: its settlement may be on the way.
    let Here::Run(_) = gateway.here(&open.id) else { return Some(None) };
    let rows = gateway.ports.store().look_up(std::slice::from_ref(&open.id)).await.ok()?.pop()?;
    let Reading::InDoubt(row, ground) = read(gateway, rows) else { return None };
    let rows: Vec<Row> = std::iter::once(row).chain(ground.beside.iter().cloned()).collect();
    // Since it was listed another attempt was made: the next round has that one.
    if !rows.iter().any(|row| row.origin == open.row.origin && row.token == open.row.token) {
        return Some(None);
    }
    let alone = matches!(&rows[..], [row] if row.origin == gateway.origin);
    let own = |row: &Row| Attempt { id: open.id.clone(), token: row.token, nonce: row.nonce };
    let (fact, result, attempt) = match ask_all(gateway, policy, &open, &rows).await {
        Learned::Later(after) => return Some(after),
        Learned::OwnNot(row) => (Fact::Released, "released", own(&row)),
        Learned::None if alone => (Fact::Released, "released", own(&rows[0])),
        Learned::None => {
            let attempt = in_their_place(gateway, policy, &open, (&rows[0], None), basis(ground)).await;
            (Fact::Released, "released", attempt?)
        }
        Learned::Happened(row, answer) => {
            let fact = Fact::Settled(answer, row.request_id);
            if row.origin == gateway.origin {
                (fact, "settled", own(&row))
            } else {
                let whom = (&*row, Some(row.nonce));
                (fact, "settled", in_their_place(gateway, policy, &open, whom, basis(ground)).await?)
            }
        }
    };
    let (token, id) = (attempt.token, open.id);
    let stored = outcome::store(gateway, &open.route, policy.hold, attempt, fact).await;
    if stored == outcome::Stored::Yes {
        metrics::swept(result);
        tracing::info!(key = %id.digest(), %token, result, "a key in doubt was recovered without its client");
    }
    Some(None)
}

/// Each attempt in doubt is asked about by itself, newest first: only where none of them happened may the key be released.
async fn ask_all<P: Ports>(
    gateway: &Gateway<P>,
    policy: &Policy,
    open: &OpenAttempt,
    rows: &[Row],
) -> Learned {
    let (mut unknown, mut own_not, mut over_in) = (false, None, None);
    for row in rows {
        let doubt = doubt(row, policy.over());
        match recover::question(gateway, policy, &open.id, &doubt, &open.path).await {
            Said::Happened(answer) => return Learned::Happened(Box::new(row.clone()), answer),
            Said::DidNotHappen if row.origin == gateway.origin => own_not = Some(row),
            Said::DidNotHappen => {}
            Said::TooEarly(after) => {
                unknown = true;
                over_in = over_in.max(Some(after));
            }
            Said::CannotSay => unknown = true,
        }
    }
    match (unknown, own_not) {
        (false, _) => Learned::None,
        (true, Some(row)) => Learned::OwnNot(Box::new(row.clone())),
        (true, None) => Learned::Later(over_in),
    }
}

/// A claim that supersedes all of them, to be ended with what is known: only their own regions write their rows. `None` if something changed
/// meanwhile, or failed: the key stays on the list.
async fn in_their_place<P: Ports>(
    gateway: &Gateway<P>,
    policy: &Policy,
    open: &OpenAttempt,
    (row, nonce): (&Row, Option<Nonce>),
    basis: Basis,
) -> Option<Attempt> {
    let whom = For {
        id: &open.id,
        fingerprint: row.fingerprint,
        principal: row.principal,
        request_id: row.request_id,
        nonce,
        basis,
        lifetime: lifetime(gateway, policy),
        request: (&open.route, &open.path),
    };
    stand_in::claim(gateway, whom).await.ok()
}
