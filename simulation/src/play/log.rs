//! The log of a play: answers to clients, and faults, in order of time.
//!
//! [`super::clients`] and [`super::faults`] write it; the judge and the story read it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

use onceway::gateway::authority::status::HindranceStatus;
use onceway::protocol::key::KeyId;
use onceway::protocol::region::RegionName;
use tokio::time::Instant;

use crate::deployment::Reply;
use crate::process::locked;
use crate::words::joined;

#[derive(Clone, Debug)]
pub struct Asked {
    /// The time at which it was sent.
    pub begun: Instant,
    /// The time at which its client had the reply, or gave up.
    pub ended: Instant,
    pub id: KeyId,
    pub body: &'static str,
    pub at: RegionName,
    pub reply: Reply,
}

#[derive(Clone, Debug)]
pub(crate) struct Broken {
    pub(crate) kind: &'static str,
    /// A region, or `from>to`.
    pub(crate) place: String,
    pub(crate) from: Instant,
    /// `None` while it lasts.
    pub(crate) to: Option<Instant>,
}

/// A region that ran keys for a while: it held its lease, and its gained keys were open.
#[derive(Clone, Debug)]
pub(crate) struct Served {
    pub(crate) region: RegionName,
    pub(crate) from: Instant,
    /// The last look at which it ran keys.
    pub(crate) to: Instant,
}

/// The kinds of notes, in the order of a story's lines of one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Noted {
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

#[derive(Debug, Default)]
pub struct Log(Mutex<Inner>);

impl Log {
    pub(crate) fn gave_up(&self, id: &KeyId) {
        locked(&self.0).gave_up.insert(id.clone());
    }

    pub(crate) fn asked(&self, asked: Asked) {
        locked(&self.0).asked.push(asked);
    }

    /// Notes that a fault begins. Returns its number.
    pub(crate) fn breaks(&self, kind: &'static str, place: String) -> usize {
        let mut inner = locked(&self.0);
        inner.broken.push(Broken { kind, place, from: Instant::now(), to: None });
        inner.broken.len() - 1
    }

    pub(crate) fn mended(&self, number: usize) {
        if let Some(broken) = locked(&self.0).broken.get_mut(number) {
            broken.to = Some(Instant::now());
        }
    }

    pub(crate) fn not_possible(&self, why: String) {
        locked(&self.0).noted.push((Instant::now(), Noted::NotPossible, why));
    }

    pub(crate) fn acted(&self, what: String) {
        locked(&self.0).noted.push((Instant::now(), Noted::Acted, what));
    }

    pub(crate) fn serves(&self, region: &RegionName, now_serves: bool) {
        let now = Instant::now();
        let mut inner = locked(&self.0);
        if now_serves {
            let new = || Served { region: region.clone(), from: now, to: now };
            inner.serving.entry(region.clone()).or_insert_with(new).to = now;
        } else if let Some(served) = inner.serving.remove(region) {
            inner.served.push(served);
        }
    }

    /// Notes why gained keys of a region cannot start yet, as its gateway says, on every change.
    pub(crate) fn waits(&self, region: &RegionName, missing: &[HindranceStatus]) {
        let kinds: Vec<_> = missing.iter().map(|one| (one.what, one.region.clone())).collect();
        let mut inner = locked(&self.0);
        if inner.waits.get(region).map(Vec::as_slice).unwrap_or_default() == kinds {
            return;
        }
        let left =
            |one: &HindranceStatus| one.left_ms.map_or(String::new(), |left| format!(" for {left} ms more"));
        let texts = joined(missing.iter().map(|one| format!("{}{}", one.text, left(one))), "; ");
        let text = if missing.is_empty() { "nothing is missing any more" } else { &texts };
        inner.waits.insert(region.clone(), kinds);
        inner.noted.push((Instant::now(), Noted::Waits, format!("{region}: {text}")));
    }

    /// All notes, with their times, kind by kind.
    pub(crate) fn all_noted(&self) -> Vec<(Instant, Noted, String)> {
        let mut all = locked(&self.0).noted.clone();
        all.sort_by_key(|(_, kind, _)| *kind);
        all
    }

    pub(crate) fn given_up(&self) -> BTreeSet<KeyId> {
        locked(&self.0).gave_up.clone()
    }

    /// All requests, in the order in which they ended.
    pub(crate) fn all_asked(&self) -> Vec<Asked> {
        locked(&self.0).asked.clone()
    }

    /// All faults, in the order in which they began.
    pub(crate) fn all_broken(&self) -> Vec<Broken> {
        locked(&self.0).broken.clone()
    }

    /// All times in which regions ran keys, including those that still last.
    pub(crate) fn all_served(&self) -> Vec<Served> {
        let inner = locked(&self.0);
        let mut all: Vec<Served> = inner.served.iter().chain(inner.serving.values()).cloned().collect();
        all.sort_by(|one, other| (one.from, &one.region).cmp(&(other.from, &other.region)));
        all
    }
}
