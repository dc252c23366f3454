//! The log of a play: answers to clients, and faults, in order of time.
//!
//! [`super::clients`] and [`super::faults`] write it; the judge and the story read it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use onceway::gateway::authority::status::HindranceStatus;
use onceway::protocol::key::KeyId;
use onceway::protocol::region::RegionName;
use tokio::time::Instant;

use crate::deployment::Reply;

/// One request and its reply.
#[derive(Clone, Debug)]
pub struct Asked {
    /// The time at which it was sent.
    pub begun: Instant,
    /// The time at which its client had the reply, or gave up.
    pub ended: Instant,
    /// The key.
    pub id: KeyId,
    /// The request's body.
    pub body: &'static str,
    /// The region that it was sent to.
    pub at: RegionName,
    /// The reply.
    pub reply: Reply,
}

/// A fault.
#[derive(Clone, Debug)]
pub struct Broken {
    /// The kind's name.
    pub kind: &'static str,
    /// A region, or `from>to`.
    pub place: String,
    /// The beginning.
    pub from: Instant,
    /// The end; `None` while it lasts.
    pub to: Option<Instant>,
}

/// A region that ran keys for a while: it held its lease, and its gained keys were open.
#[derive(Clone, Debug)]
pub struct Served {
    /// The region.
    pub region: RegionName,
    /// The beginning.
    pub from: Instant,
    /// The last look at which it ran keys.
    pub to: Instant,
}

/// The kinds of notes, in the order of a story's lines of one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Noted {
    /// A fault or an operator's act that was not possible.
    NotPossible,
    /// Reason why gained keys of a region cannot start yet.
    Waits,
    /// An act of the operator on call.
    Acted,
}

#[derive(Debug, Default)]
struct Inner {
    gave_up: BTreeSet<KeyId>,
    asked: Vec<Asked>,
    broken: Vec<Broken>,
    noted: Vec<(Instant, Noted, String)>,
    serving: BTreeMap<RegionName, Served>,
    served: Vec<Served>,
    waits: BTreeMap<RegionName, Vec<(&'static str, String)>>,
}

/// The log of one play.
#[derive(Debug, Default)]
pub struct Log(Mutex<Inner>);

impl Log {
    /// Notes that a client gave a key up.
    pub fn gave_up(&self, id: &KeyId) {
        self.lock().gave_up.insert(id.clone());
    }

    /// Notes that a request ended.
    pub fn asked(&self, asked: Asked) {
        self.lock().asked.push(asked);
    }

    /// Notes that a fault begins. Returns its number.
    pub fn breaks(&self, kind: &'static str, place: String) -> usize {
        let mut inner = self.lock();
        inner.broken.push(Broken { kind, place, from: Instant::now(), to: None });
        inner.broken.len() - 1
    }

    /// Notes that a fault is mended.
    pub fn mended(&self, number: usize) {
        if let Some(broken) = self.lock().broken.get_mut(number) {
            broken.to = Some(Instant::now());
        }
    }

    /// Notes a fault or an operator's act that was not possible, and why.
    pub fn not_possible(&self, why: String) {
        self.lock().noted.push((Instant::now(), Noted::NotPossible, why));
    }

    /// Notes an act of the operator on call.
    pub fn acted(&self, what: String) {
        self.lock().noted.push((Instant::now(), Noted::Acted, what));
    }

    /// Notes if a region runs keys, at a look.
    pub fn serves(&self, region: &RegionName, now_serves: bool) {
        let now = Instant::now();
        let mut inner = self.lock();
        match (now_serves, inner.serving.remove(region)) {
            (true, Some(served)) => {
                inner.serving.insert(region.clone(), Served { to: now, ..served });
            }
            (true, None) => {
                inner.serving.insert(region.clone(), Served { region: region.clone(), from: now, to: now });
            }
            (false, Some(served)) => inner.served.push(served),
            (false, None) => {}
        }
    }

    /// Notes why gained keys of a region cannot start yet, as its gateway says, on every change.
    pub fn waits(&self, region: &RegionName, missing: &[HindranceStatus]) {
        let kinds: Vec<_> = missing.iter().map(|one| (one.what, one.region.clone())).collect();
        let mut inner = self.lock();
        if inner.waits.get(region).map(Vec::as_slice).unwrap_or_default() == kinds {
            return;
        }
        let left =
            |one: &HindranceStatus| one.left_ms.map_or(String::new(), |left| format!(" for {left} ms more"));
        let texts = missing.iter().map(|one| format!("{}{}", one.text, left(one))).collect::<Vec<_>>();
        let text = if texts.is_empty() { "nothing is missing any more".to_owned() } else { texts.join("; ") };
        inner.waits.insert(region.clone(), kinds);
        inner.noted.push((Instant::now(), Noted::Waits, format!("{region}: {text}")));
    }

    /// All notes, with their times, kind by kind.
    pub fn all_noted(&self) -> Vec<(Instant, Noted, String)> {
        let mut all = self.lock().noted.clone();
        all.sort_by_key(|(_, kind, _)| *kind);
        all
    }

    /// Keys that their clients gave up.
    pub fn given_up(&self) -> BTreeSet<KeyId> {
        self.lock().gave_up.clone()
    }

    /// All requests, in the order in which they ended.
    pub fn all_asked(&self) -> Vec<Asked> {
        self.lock().asked.clone()
    }

    /// All faults, in the order in which they began.
    pub fn all_broken(&self) -> Vec<Broken> {
        self.lock().broken.clone()
    }

    /// All times in which regions ran keys, including those that still last.
    pub fn all_served(&self) -> Vec<Served> {
        let inner = self.lock();
        let mut all: Vec<Served> = inner.served.iter().chain(inner.serving.values()).cloned().collect();
        all.sort_by(|one, other| (one.from, &one.region).cmp(&(other.from, &other.region)));
        all
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
