//! Shadow mode's memory: the keys so far, in a bounded table, and the expected decisions by route.
//!
//! The memory is one process's and ends with it: the report is a guess. It holds digests only.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::Serialize;

use crate::gateway::request::problems::Kind;
use crate::gateway::telemetry::metrics;
use crate::protocol::digest::Digest32;
use crate::protocol::fingerprint::Fingerprint;
use crate::protocol::key::KeyId;
use crate::protocol::lifetime::Retention;
use crate::protocol::outcome::Outcome;
use crate::protocol::time::Moment;

/// Keys that one process remembers, at most.
const MOST_KEYS: usize = 100_000;

#[derive(Debug)]
pub struct Shadow(Mutex<Inner>);

#[derive(Debug)]
pub struct Inner {
    pub memory: Memory,
    pub routes: BTreeMap<Arc<str>, Counts>,
}

/// Expected results of one route's requests.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Counts {
    /// Run by the upstream.
    pub run: u64,
    /// Answered with an earlier answer.
    pub replayed: u64,
    /// Left to the route's recovery.
    pub in_doubt: u64,
    /// Passed without a key's protection, though the method may change state.
    pub unprotected: u64,
    /// Not known: the body was not read to its end, or the run was given up.
    pub unjudged: u64,
    /// Refused, by code.
    pub refused: BTreeMap<&'static str, u64>,
    /// Copies of one request whose final answers had different statuses.
    pub diverged: u64,
}

/// Expected decisions of this process. Field names are a contract: add, never rename.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The gateway's region.
    pub region: String,
    /// Seconds since the count began.
    pub seconds: u64,
    /// Number of keys that are remembered now.
    pub remembered: usize,
    /// Number of keys that were dropped for newer ones: their retries count as run.
    pub forgotten: u64,
    /// Counts by route; `-` is none.
    pub routes: BTreeMap<String, Counts>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Run,
    Replayed,
    InDoubt,
    Unprotected,
    Unjudged,
    Refused(&'static str),
}

impl Verdict {
    pub fn refused(kind: Kind) -> Self {
        Self::Refused(kind.row().code)
    }

    /// The verdict on a copy that waited for a run.
    pub fn after_waiting(given: Option<Outcome>) -> Self {
        match given {
            Some(Outcome::Final) => Self::Replayed,
            Some(Outcome::NothingHappened) => Self::Run,
            Some(Outcome::Unknown) => Self::InDoubt,
            None => Self::refused(Kind::InProgress),
        }
    }
}

impl Shadow {
    pub fn new() -> Self {
        Self(Mutex::new(Inner { memory: Memory::new(MOST_KEYS), routes: BTreeMap::new() }))
    }

    /// Counts a verdict. Logs it if the client would have got another answer than its upstream's.
    pub fn judge(&self, route: &Arc<str>, id: Option<&KeyId>, verdict: Verdict) {
        let (word, code) = {
            let mut inner = self.lock();
            let counts = inner.routes.entry(route.clone()).or_default();
            let (word, code, count) = match verdict {
                Verdict::Run => ("run", "-", &mut counts.run),
                Verdict::Replayed => ("replayed", "-", &mut counts.replayed),
                Verdict::InDoubt => ("in_doubt", "-", &mut counts.in_doubt),
                Verdict::Unprotected => ("unprotected", "-", &mut counts.unprotected),
                Verdict::Unjudged => ("unjudged", "-", &mut counts.unjudged),
                Verdict::Refused(code) => ("refused", code, counts.refused.entry(code).or_default()),
            };
            *count += 1;
            (word, code)
        };
        metrics::shadow(route, word, code);
        if matches!(verdict, Verdict::Replayed | Verdict::InDoubt | Verdict::Refused(_)) {
            let tenant = id.map_or("-", |id| id.tenant().as_str());
            let key = id.map_or_else(|| "-".to_owned(), |id| id.digest().to_string());
            tracing::info!(%route, tenant, key, verdict = word, code, "shadow mode: passed, but would not have been");
        }
    }

    pub fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug)]
pub struct Memory {
    entries: BTreeMap<Digest32, Entry>,
    /// By number, so that the oldest is found.
    order: BTreeMap<u64, Digest32>,
    next: u64,
    most: usize,
    forgotten: u64,
}

#[derive(Debug)]
struct Entry {
    number: u64,
    asked: Asked,
    /// Retention counts from the newest claim.
    since: Moment,
    run: Run,
    /// The first final status that any copy got.
    settled: Option<u16>,
}

#[derive(Debug)]
enum Run {
    /// Running since it was met. Holds the arrival of each copy that came meanwhile.
    Running(Vec<Moment>),
    Over(Outcome),
}

#[derive(Clone, Copy, Debug)]
pub struct Asked {
    pub fingerprint: Fingerprint,
    pub principal: Option<Digest32>,
    /// The principal to which a run would bind the key.
    pub bound_to: Option<Digest32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Met {
    /// Nothing: the request would have run, as the entry of this number.
    Nothing(u64),
    /// A running copy, for whose answer it would have waited.
    Running(u64),
    Settled(u64),
    InDoubt,
    /// Another request under the same key.
    Other,
    Expired,
}

/// Results for other requests when one ends.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Ended {
    /// Outcome for each copy that had waited; `None` if its time was over.
    pub waited: Vec<Option<Outcome>>,
    /// True if an earlier copy got another final status.
    pub diverged: bool,
}

impl Memory {
    pub fn new(most: usize) -> Self {
        Self { entries: BTreeMap::new(), order: BTreeMap::new(), next: 0, most, forgotten: 0 }
    }

    pub fn size(&self) -> (usize, u64) {
        (self.entries.len(), self.forgotten)
    }

    /// Takes in a complete request and returns the state of its key. `reruns`: doubts run again.
    pub fn meet(
        &mut self,
        key: Digest32,
        asked: Asked,
        now: Moment,
        retention: Retention,
        reruns: bool,
    ) -> Met {
        let Some(entry) = self.entries.get_mut(&key) else { return self.insert(key, asked, now) };
        if Retention::For(now.since(entry.since)) > retention {
            return Met::Expired;
        }
        let bound_to = entry.asked.bound_to;
        let may = bound_to.is_none() || bound_to == asked.principal;
        if !may || !asked.fingerprint.same(&entry.asked.fingerprint) {
            return Met::Other;
        }
        match &mut entry.run {
            Run::Running(waiting) => {
                waiting.push(now);
                Met::Running(entry.number)
            }
            Run::Over(Outcome::Final) => Met::Settled(entry.number),
            Run::Over(Outcome::Unknown) if !reruns => Met::InDoubt,
            Run::Over(Outcome::Unknown | Outcome::NothingHappened) => {
                entry.run = Run::Running(Vec::new());
                entry.since = now;
                Met::Nothing(entry.number)
            }
        }
    }

    /// Takes in the answer to the request that met `met`: a status, or none that is known.
    pub fn end(
        &mut self,
        met: Met,
        (outcome, status): (Outcome, Option<u16>),
        now: Moment,
        wait: Duration,
    ) -> Ended {
        let (number, ran) = match met {
            Met::Nothing(number) => (number, true),
            Met::Running(number) | Met::Settled(number) => (number, false),
            Met::InDoubt | Met::Other | Met::Expired => return Ended::default(),
        };
        let mut ended = Ended::default();
        let entry = self.order.get(&number).and_then(|key| self.entries.get_mut(key));
        let Some(entry) = entry else { return ended };
        if outcome == Outcome::Final {
            ended.diverged = entry.settled.is_some_and(|first| Some(first) != status);
            entry.settled = entry.settled.or(status);
        }
        if ran && let Run::Running(waiting) = std::mem::replace(&mut entry.run, Run::Over(outcome)) {
            let given = |began: Moment| (now.since(began) <= wait).then_some(outcome);
            ended.waited = waiting.into_iter().map(given).collect();
        }
        ended
    }

    /// Drops a run that was given up. Returns the number of copies that waited for it.
    pub fn forget(&mut self, met: Met) -> usize {
        let Met::Nothing(number) = met else { return 0 };
        let entry = self.order.remove(&number).and_then(|key| self.entries.remove(&key));
        match entry.map(|entry| entry.run) {
            Some(Run::Running(waiting)) => waiting.len(),
            Some(Run::Over(_)) | None => 0,
        }
    }

    fn insert(&mut self, key: Digest32, asked: Asked, now: Moment) -> Met {
        if self.entries.len() >= self.most
            && let Some((_, oldest)) = self.order.pop_first()
        {
            self.entries.remove(&oldest);
            self.forgotten += 1;
        }
        let number = self.next;
        self.next += 1;
        self.order.insert(number, key);
        let run = Run::Running(Vec::new());
        self.entries.insert(key, Entry { number, asked, since: now, run, settled: None });
        Met::Nothing(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::digest::digest;

    const WAIT: Duration = Duration::from_secs(5);
    const RETENTION: Retention = Retention::For(Duration::from_secs(60));

    fn key(name: &str) -> Digest32 {
        digest("onceway/test/1", &[name.as_bytes()])
    }

    fn at(seconds: u64) -> Moment {
        Moment::from_nanos(seconds * 1_000_000_000)
    }

    fn meet(memory: &mut Memory, name: &str, body: &str, seconds: u64) -> Met {
        memory.meet(key(name), asked(body, None), at(seconds), RETENTION, false)
    }

    fn asked(body: &str, principal: Option<&str>) -> Asked {
        let principal = principal.map(key);
        let fingerprint = Fingerprint { raw: key(body), canonical: None };
        Asked { fingerprint, principal, bound_to: principal }
    }

    fn end(memory: &mut Memory, met: Met, status: u16, seconds: u64) -> Ended {
        let outcome = match status {
            200..=499 => Outcome::Final,
            503 => Outcome::NothingHappened,
            _ => Outcome::Unknown,
        };
        memory.end(met, (outcome, Some(status)), at(seconds), WAIT)
    }

    #[test]
    fn a_key_goes_through_its_life() {
        let mut memory = Memory::new(9);
        let first = meet(&mut memory, "k", "a", 0);
        assert_eq!(first, Met::Nothing(0));
        assert_eq!([1, 7].map(|second| meet(&mut memory, "k", "a", second)), [Met::Running(0); 2]);
        assert_eq!(meet(&mut memory, "k", "b", 7), Met::Other);
        let ended = end(&mut memory, first, 201, 8);
        assert_eq!(ended.waited, [None, Some(Outcome::Final)], "the first copy had waited for too long");
        assert_eq!(meet(&mut memory, "k", "a", 60), Met::Settled(0));
        assert_eq!(meet(&mut memory, "k", "a", 61), Met::Expired);
    }

    #[test]
    fn only_requests_without_effect_run_again() {
        let mut memory = Memory::new(9);
        let first = meet(&mut memory, "k", "a", 0);
        end(&mut memory, first, 503, 1);
        let again = meet(&mut memory, "k", "a", 2);
        assert_eq!(again, first, "the same entry runs again");
        end(&mut memory, again, 500, 3);
        assert_eq!(meet(&mut memory, "k", "a", 4), Met::InDoubt);
        let same = asked("a", None);
        let met = memory.meet(key("k"), same, at(4), RETENTION, true);
        assert_eq!(met, Met::Nothing(0), "a route that reruns");
    }

    #[test]
    fn shadow_mode_tells_principals_of_one_key_apart() {
        let mut memory = Memory::new(9);
        let mut by = |who| memory.meet(key("k"), asked("a", who), at(0), RETENTION, false);
        assert_eq!(by(Some("ann")), Met::Nothing(0));
        assert_eq!([by(Some("bob")), by(None), by(Some("ann"))], [Met::Other, Met::Other, Met::Running(0)]);
    }

    #[test]
    fn two_final_answers_that_differ_diverge() {
        let mut memory = Memory::new(9);
        let first = meet(&mut memory, "k", "a", 0);
        assert!(!end(&mut memory, first, 201, 1).diverged);
        let copy = meet(&mut memory, "k", "a", 2);
        assert!(!end(&mut memory, copy, 201, 2).diverged);
        assert!(!end(&mut memory, copy, 503, 2).diverged, "nothing happened, so it says nothing");
        assert!(end(&mut memory, copy, 409, 2).diverged);
    }

    #[test]
    fn evicting_an_entry_never_changes_a_newer_one() {
        let mut memory = Memory::new(2);
        let first = meet(&mut memory, "k", "a", 0);
        meet(&mut memory, "l", "a", 0);
        meet(&mut memory, "m", "a", 0);
        assert_eq!(memory.size(), (2, 1));
        let anew = meet(&mut memory, "k", "a", 1);
        assert_ne!(anew, first);
        end(&mut memory, first, 201, 2);
        assert_eq!(meet(&mut memory, "k", "a", 3), Met::Running(3), "the newer run goes on");
        assert_eq!((memory.forget(first), memory.forget(anew)), (0, 1));
        assert_eq!(memory.size(), (1, 2));
    }
}
