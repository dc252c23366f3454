//! The circuit breaker on calls about keys: no request waits in vain for a silent store.
//!
//! After several calls in a row without an answer, further calls are refused at once, and nothing
//! was sent. A probe asks until it is answered, and closes the breaker. An error of the server
//! counts as an answer. Calls that fence never pass here: heartbeats, leases and acceptors.

use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use tokio::time::{Instant, sleep};
use uuid::Uuid;

use super::connect::Connections;
use super::errors::{self, Effect};
use super::params::Params;
use super::run::{self, Call};
use crate::adapters::system::lock;
use crate::ports::observe;
use crate::ports::store::StoreError;

/// Calls in a row without an answer that open the breaker. The number survives a hiccup of a quiet
/// gateway, and is less than its connections.
const MOST_SILENT: u32 = 8;
/// Time between two probes.
const PROBE_EVERY: Duration = Duration::from_millis(500);

/// One breaker. Closed at first.
pub(super) struct Breaker {
    /// The guarded calls, for labels and texts: reads or writes.
    calls: &'static str,
    state: Mutex<State>,
}

struct State {
    /// Calls in a row without an answer, of those that began since the breaker closed last.
    silent: u32,
    /// Number of times that the breaker closed: a call that began before says nothing by now.
    round: u64,
    open: Option<Instant>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Pass(u64);

impl Breaker {
    fn new(calls: &'static str) -> Arc<Self> {
        let state = State { silent: 0, round: 0, open: None };
        Arc::new(Self { calls, state: Mutex::new(state) })
    }

    /// Lets a call pass, or refuses it. After a refusal nothing was sent.
    pub(super) fn pass(&self, what: &str) -> Result<Pass, StoreError> {
        let state = lock(&self.state);
        if state.open.is_some() {
            metrics::counter!(observe::STORE_SPARED, "calls" => self.calls).increment(1);
            return Err(errors::not_sent(what, "refused at once, as the store does not answer"));
        }
        Ok(Pass(state.round))
    }

    /// Notes whether a call was answered. `true` if that opened the breaker, which is then probed.
    fn ended(&self, pass: Pass, answered: bool) -> bool {
        let mut state = lock(&self.state);
        if state.round != pass.0 || state.open.is_some() {
            return false;
        }
        state.silent = if answered { 0 } else { state.silent + 1 };
        if state.silent < MOST_SILENT {
            return false;
        }
        state.open = Some(Instant::now());
        metrics::gauge!(observe::STORE_BREAKER, "calls" => self.calls).set(1.0);
        tracing::error!(
            calls = self.calls,
            silent = state.silent,
            "the store does not answer: calls about keys are refused at once until it does"
        );
        true
    }

    /// The present refusals, for status and logs; `None` while calls pass.
    pub(super) fn refuses(&self) -> Option<String> {
        let since = lock(&self.state).open?;
        Some(format!(
            "{} of keys are refused at once for {} s by now: {MOST_SILENT} calls in a row got no answer",
            self.calls,
            since.elapsed().as_secs()
        ))
    }

    fn close(&self) {
        let mut state = lock(&self.state);
        let open = state.open.take().map_or(Duration::ZERO, |since| since.elapsed());
        (state.silent, state.round) = (0, state.round + 1);
        metrics::gauge!(observe::STORE_BREAKER, "calls" => self.calls).set(0.0);
        tracing::info!(calls = self.calls, ms = open.as_millis() as u64, "the store answers again");
    }
}

/// The breaker on calls of one kind, and the probe that closes it.
pub(super) struct Guard {
    pub(super) breaker: Arc<Breaker>,
    probe: Arc<Probe>,
}

impl Guard {
    pub(super) fn new(calls: &'static str, probe: Probe) -> Arc<Self> {
        Arc::new(Self { breaker: Breaker::new(calls), probe: Arc::new(probe) })
    }

    pub(super) fn ended(&self, pass: Pass, answered: bool) {
        if self.breaker.ended(pass, answered) {
            let asked = self.probe.clone();
            tokio::spawn(probe(Arc::downgrade(&self.breaker), move || asked.clone().is_answered()));
        }
    }
}

/// A call like the unanswered ones about a key that cannot exist: no tenant is empty.
pub(super) struct Probe {
    pub(super) connections: Connections,
    pub(super) within: Duration,
    pub(super) effect: Effect,
    pub(super) sql: String,
}

impl Probe {
    async fn is_answered(self: Arc<Self>) -> bool {
        let call = Call { what: "a probe", effect: self.effect, sql: &self.sql };
        let (tenant, key): (&str, &[u8]) = ("", &[]);
        let nobody: Params<'_> = &[&tenant, &key, &0_i64, &0_i32, &Uuid::nil()];
        let params = match self.effect {
            Effect::Reads => &nobody[..2],
            Effect::Writes => nobody,
        };
        let ended = run::run(&self.connections, self.within, call, params).await;
        ended.map_or_else(|failed| failed.answered, |_| true)
    }
}

/// Asks until there is an answer, then closes the breaker. Ends when the store is dropped.
async fn probe<F: Future<Output = bool>>(breaker: Weak<Breaker>, is_answered: impl Fn() -> F) {
    loop {
        sleep(PROBE_EVERY).await;
        if breaker.strong_count() == 0 {
            return;
        }
        if is_answered().await {
            if let Some(breaker) = breaker.upgrade() {
                breaker.close();
            }
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn silent(breaker: &Breaker, times: u32) -> Vec<bool> {
        (0..times).map(|_| breaker.ended(breaker.pass("a call").unwrap(), false)).collect()
    }

    #[test]
    fn consecutive_unanswered_calls_open_the_breaker() {
        let breaker = Breaker::new("writes");
        assert!(silent(&breaker, MOST_SILENT - 1).iter().all(|opened| !opened));
        assert!(!breaker.ended(breaker.pass("a call").unwrap(), true));
        assert_eq!(silent(&breaker, MOST_SILENT).last(), Some(&true));
        let StoreError::Definite(why) = breaker.pass("a claim").unwrap_err() else {
            panic!("nothing was sent: that is definite")
        };
        assert!(why.starts_with("a claim: refused at once"), "{why}");
        assert!(breaker.refuses().unwrap().starts_with("writes of keys"));
    }

    #[test]
    fn calls_from_before_the_close_never_reopen_the_breaker() {
        let breaker = Breaker::new("reads");
        let old: Vec<Pass> = (0..3 * MOST_SILENT).map(|_| breaker.pass("a call").unwrap()).collect();
        let opened = old.iter().filter(|pass| breaker.ended(**pass, false)).count();
        assert_eq!(opened, 1, "and one probe is enough");
        breaker.close();
        assert!(breaker.refuses().is_none());
        assert!(old.iter().all(|pass| !breaker.ended(*pass, false)), "late news");
        breaker.pass("a call").unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn an_open_breaker_probes_until_it_gets_an_answer() {
        let breaker = Breaker::new("reads");
        silent(&breaker, MOST_SILENT);
        let asked = std::cell::Cell::new(0);
        let is_answered = || {
            asked.set(asked.get() + 1);
            std::future::ready(asked.get() == 3)
        };
        probe(Arc::downgrade(&breaker), is_answered).await;
        assert_eq!(asked.get(), 3);
        breaker.pass("a call").unwrap();
    }
}
