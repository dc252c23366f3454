//! The expected decisions of a gateway in shadow mode, counted by route, and its memory of keys.
//!
//! The report is a guess by one process's memory. This file must not see a request.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::Serialize;

use super::memory::Memory;
use crate::gateway::request::problems::Kind;
use crate::gateway::telemetry::metrics;
use crate::protocol::key::KeyId;
use crate::protocol::outcome::Outcome;

/// Keys that one process remembers, at most.
const MOST_KEYS: usize = 100_000;

/// The counts, and the memory of keys.
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
    /// Copies of one request whose final answers had different statuses: a replay would have
    /// differed.
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
