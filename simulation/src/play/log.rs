//! What clients were told, and what was broken, in the order in which it was.
//!
//! Neighbours: [`super::clients`] and [`super::faults`] write it, [`super::judge`] and the story read it. It must not judge.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use onceway::gateway::authority::status::HindranceStatus;
use onceway::protocol::key::KeyId;
use onceway::protocol::region::RegionName;
use tokio::time::Instant;

use crate::deployment::Reply;

/// One request and what it was told.
#[derive(Clone, Debug)]
pub struct Asked {
    /// When it was sent.
    pub begun: Instant,
    /// When its client had the reply, or gave up.
    pub ended: Instant,
    /// Its key.
    pub id: KeyId,
    /// What it asked.
    pub body: &'static str,
    /// Where it was sent.
    pub at: RegionName,
    /// What it was told.
    pub reply: Reply,
}

/// Something that was broken.
#[derive(Clone, Debug)]
pub struct Broken {
    /// What, as its kind's name.
    pub kind: &'static str,
    /// Where.
    pub place: String,
    /// Since when.
    pub from: Instant,
    /// Until when; `None` while it is.
    pub to: Option<Instant>,
}

/// A region that ran keys for a while: with its lease, and what it was given opened.
#[derive(Clone, Debug)]
pub struct Served {
    /// Whose.
    pub region: RegionName,
    /// Since when.
    pub from: Instant,
    /// When it was last seen held.
    pub to: Instant,
}

#[derive(Debug, Default)]
struct Inner {
    gave_up: BTreeSet<KeyId>,
    asked: Vec<Asked>,
    broken: Vec<Broken>,
    refused: Vec<(Instant, String)>,
    acted: Vec<(Instant, String)>,
    serving: BTreeMap<RegionName, Served>,
    served: Vec<Served>,
    waits: BTreeMap<RegionName, Vec<(&'static str, String)>>,
    waited: Vec<(Instant, String)>,
}

/// The log of one play.
#[derive(Debug, Default)]
pub struct Log(Mutex<Inner>);

impl Log {
    /// A client gave a key up.
    pub fn gave_up(&self, id: &KeyId) {
        self.lock().gave_up.insert(id.clone());
    }

    /// A request ended.
    pub fn asked(&self, asked: Asked) {
        self.lock().asked.push(asked);
    }

    /// Something is broken from now on. Returns its number.
    pub fn breaks(&self, kind: &'static str, place: String) -> usize {
        let mut inner = self.lock();
        inner.broken.push(Broken { kind, place, from: Instant::now(), to: None });
        inner.broken.len() - 1
    }

    /// It is mended.
    pub fn mended(&self, number: usize) {
        if let Some(broken) = self.lock().broken.get_mut(number) {
            broken.to = Some(Instant::now());
        }
    }

    /// A fault or an operator's act that was not possible then, and why.
    pub fn not_possible(&self, why: String) {
        self.lock().refused.push((Instant::now(), why));
    }

    /// Something that the operator on call did.
    pub fn acted(&self, what: String) {
        self.lock().acted.push((Instant::now(), what));
    }

    /// Whether a region runs keys, as somebody looks.
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

    /// What keeps keys that a region gained from starting, as its gateway says; kept where it is something else than before.
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
        inner.waited.push((Instant::now(), format!("{region}: {text}")));
    }

    /// What regions waited for, and since when.
    pub fn all_waited(&self) -> Vec<(Instant, String)> {
        self.lock().waited.clone()
    }

    /// Keys that their clients gave up.
    pub fn given_up(&self) -> BTreeSet<KeyId> {
        self.lock().gave_up.clone()
    }

    /// All requests, in the order in which they ended.
    pub fn all_asked(&self) -> Vec<Asked> {
        self.lock().asked.clone()
    }

    /// All that was broken, in the order in which it began.
    pub fn all_broken(&self) -> Vec<Broken> {
        self.lock().broken.clone()
    }

    /// What was not possible, and when.
    pub fn all_not_possible(&self) -> Vec<(Instant, String)> {
        self.lock().refused.clone()
    }

    /// What the operator on call did, and when.
    pub fn all_acted(&self) -> Vec<(Instant, String)> {
        self.lock().acted.clone()
    }

    /// All of these times, those that last still included.
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
