//! Whether the database's clock is to be believed: fed by heartbeats and by every row whose hold is judged.
//!
//! Neighbours: `protocol::suspect` compares the clocks; [`super::heartbeat`] brings readings and
//! journals steps; [`super::ending::read`] has each row pass through here before anybody asks what
//! it means. While the clock is suspect no hold is over and no answer expires, so nothing is
//! recovered, released as "did not happen", reaped or swept. It must not end early: after one
//! longest hold and settle time, by the boot clock. How long keys live is judged by observed time
//! (`protocol::forget`), which the store keeps.

use std::sync::{MutexGuard, PoisonError};
use std::time::Duration;

use super::{Gateway, Settings, metrics};
use crate::ports::store::Written;
use crate::ports::{Clock, Ports, Upkeep};
use crate::protocol::forget::{self, MayForget};
use crate::protocol::plant::{Plant, removed};
use crate::protocol::record::{Row, State};
use crate::protocol::suspect::{ClockWatch, Reading, Step};
use crate::protocol::time::{Date, Moment};

/// A watch over the database's clock, before its first reading.
pub(super) fn watch(settings: &Settings) -> ClockWatch {
    // The settle time too: "did not happen" is counted from the end of the hold.
    let holds = settings.routes.policies().map(|policy| policy.hold + policy.settle_time);
    ClockWatch::new(settings.drift, holds.max().unwrap_or_default())
}

/// The times that another gateway of the region may be faster before this one leaves it for the
/// next time.
const TRIES: usize = 4;

/// This process's knowledge of the observed time of its store.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Observing {
    /// When it looked last.
    looked: Option<Moment>,
    /// The finding of then; `None` from a step on until it has looked again.
    found: Option<Found>,
}

#[derive(Clone, Copy, Debug)]
struct Found {
    /// By how much the database's clock is ahead of the observed time.
    ahead: Duration,
    /// The longest life of a key that may be remembered still.
    longest: Option<Duration>,
}

/// Takes in that time has passed, and that keys are promised these lives from now on: durable
/// before anybody is promised one. Whether that is done.
pub(super) async fn observe<P: Ports>(gateway: &Gateway<P>, promised: &[Option<Duration>]) -> bool {
    let (store, clock) = (gateway.ports.store(), gateway.ports.clock());
    for _ in 0..TRIES {
        let asked = clock.now();
        let Ok((version, before, date)) = store.observed().await else { return false };
        let looked = gateway.observing().looked;
        let since = looked.map(|looked| clock.now().since(looked));
        let next = before.next(date, since, promised, gateway.settings.drift);
        let (ahead, longest) = (next.ahead(), next.longest_life());
        match metrics::upkeep("observe", store.observe(version, &next)).await {
            Ok(Written::Done) => {
                if ahead > before.ahead() + LEAD {
                    let ahead = ahead.as_millis() as u64;
                    tracing::warn!(
                        ahead,
                        "the database's clock is ahead of the time that gateways saw pass: keys are kept for longer"
                    );
                }
                *gateway.observing() =
                    Observing { looked: Some(asked), found: Some(Found { ahead, longest }) };
                return true;
            }
            // Whoever was faster wrote after this look.
            Ok(Written::Lost | Written::GateMoved) => gateway.observing().looked = Some(asked),
            Err(_) => return false,
        }
    }
    false
}

/// A smaller lead is not worth a line: each restart leaves one.
const LEAD: Duration = Duration::from_secs(60);

/// The kind under which a step is journalled.
const SUSPECT: &str = "clock-suspect";

/// Takes a heartbeat's date in. A step is counted, logged and journalled. The first date counts only together with what the journal says
/// of the time before this process: a restart must not make a suspect clock a trusted one.
pub(super) async fn heard<P: Ports>(gateway: &Gateway<P>, date: Date, asked: Moment) {
    let answered = gateway.ports.clock().now();
    if !gateway.clock_watch().is_fed() {
        match gateway.ports.store().noted(SUSPECT).await {
            Ok(Some(ago)) => gateway.clock_watch().told(ago, gateway.ports.clock().now()),
            Ok(None) => {}
            Err(error) => {
                tracing::warn!(%error, "cannot read whether the database's clock was suspect");
                return;
            }
        }
    }
    let step = gateway.clock_watch().heard(Reading { date, asked, answered });
    if let Some(step) = step {
        gateway.observing().found = None;
        metrics::clock_stepped();
        let reason = told(step);
        tracing::warn!(reason, "the database's clock is suspect: no hold counts as over, nothing is reaped");
        if let Err(error) = gateway.ports.store().note(SUSPECT, &reason).await {
            tracing::warn!(%error, "a step of the database's clock could not be journalled");
        }
    }
    metrics::clock_suspect(gateway.clock_suspect_for().is_some());
}

fn told(step: Step) -> String {
    match step {
        Step::Ahead(by) => {
            format!("the database's clock stepped ahead by {} ms or a little more", by.as_millis())
        }
        Step::Behind(by) => {
            format!("the database's clock stepped back by {} ms or a little more", by.as_millis())
        }
    }
}

impl<P: Ports> Gateway<P> {
    pub(super) fn clock_watch(&self) -> MutexGuard<'_, ClockWatch> {
        self.clock_watch.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// For how long the database's clock stays suspect; `None` while it is trusted.
    pub(super) fn clock_suspect_for(&self) -> Option<Duration> {
        let now = self.ports.clock().now();
        self.clock_watch().suspect_for(now)
    }

    pub(super) fn observing(&self) -> MutexGuard<'_, Observing> {
        self.observing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// True once it is known how far the database's clock is ahead of the observed time.
    pub(super) fn has_observed(&self) -> bool {
        self.observing().found.is_some()
    }

    /// By how much the database's clock is ahead of the time that gateways saw pass; `None` until
    /// that is known.
    pub(super) fn clock_ahead(&self) -> Option<Duration> {
        self.observing().found.map(|found| found.ahead)
    }

    /// The right to forget now. `None`: nothing may be forgotten.
    pub(super) fn may_forget(&self) -> Option<MayForget> {
        let ahead = self.clock_ahead();
        forget::may_forget(&self.clock_watch(), ahead, self.ports.clock().now())
    }

    /// The longest life of a key that may be remembered still, by what the store has kept of
    /// promises; `None`: for ever, or not known.
    pub(super) fn longest_life(&self) -> Option<Duration> {
        if removed(Plant::LivesKept) {
            let now = self.promised_lives();
            return now.iter().try_fold(Duration::ZERO, |longest, life| Some(longest.max((*life)?)));
        }
        self.observing().found?.longest
    }

    /// Takes from rows what only a trusted clock may say: that a hold is over, or the life of an answer. Rows whose date shows that the clock
    /// has stepped since the last heartbeat make it suspect here and now.
    pub(super) fn distrust(&self, rows: &mut [Row]) {
        let now = self.ports.clock().now();
        let mut watch = self.clock_watch();
        for row in rows.iter().filter(|row| relies_on_the_clock(row)) {
            saw(&mut watch, row.seen, now);
        }
        let ahead = self.clock_ahead();
        let Some(remains) = watch.suspect_for(now) else {
            rows.iter_mut().for_each(|row| lives_on(row, ahead));
            return;
        };
        for row in rows {
            match &mut row.state {
                State::Claimed { left, past } | State::InDoubt { status: None, left, past } => {
                    *left = remains.max(*left);
                    *past = Duration::ZERO;
                }
                State::Settled { expired, .. } => *expired = false,
                State::InDoubt { status: Some(_), .. } | State::Released | State::Tombstone => {}
            }
        }
    }
}

/// By observed time an answer that is past its life by the database's clock may live still.
fn lives_on(row: &mut Row, ahead: Option<Duration>) {
    if let State::Settled { expired, .. } = &mut row.state {
        let ahead = ahead.map_or(i64::MAX, |ahead| i64::try_from(ahead.as_millis()).unwrap_or(i64::MAX));
        *expired &= row.expires.as_millis().saturating_add(ahead) <= row.seen.as_millis();
    }
}

fn saw(watch: &mut ClockWatch, seen: Date, now: Moment) {
    if let Some(step) = watch.saw(seen, now) {
        tracing::warn!(reason = told(step), "a row shows that the database's clock stepped");
        metrics::clock_suspect(true);
    }
}

fn relies_on_the_clock(row: &Row) -> bool {
    match row.state {
        State::Claimed { left, .. } | State::InDoubt { status: None, left, .. } => left.is_zero(),
        State::Settled { expired, .. } => expired,
        State::InDoubt { status: Some(_), .. } | State::Released | State::Tombstone => false,
    }
}
