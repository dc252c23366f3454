//! Trust in the database's clock: fed by heartbeats, and by every row whose hold is judged.
//!
//! `protocol::suspect` compares the clocks. [`super::finish::read`] passes each row through here
//! before its meaning is judged. While the clock is suspect no hold is over and no answer expires,
//! so nothing is recovered, released as "did not happen", reaped or swept. Suspicion must not end
//! early: it lasts one longest hold and settle time, by the boot clock. Lives of keys are judged by
//! observed time (`protocol::forget`), which the store keeps.

use std::sync::{MutexGuard, PoisonError};
use std::time::Duration;

use super::route::Routes;
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
    ClockWatch::new(settings.drift, longest_hold(&settings.routes))
}

/// The longest hold of these routes. The settle time too: "did not happen" is counted from the end
/// of the hold.
pub(super) fn longest_hold(routes: &Routes) -> Duration {
    routes.policies().map(|policy| policy.hold + policy.settle_time).max().unwrap_or_default()
}

/// Lost races with other gateways of the region, at most. After that this one waits for its next
/// turn.
const TRIES: usize = 4;

/// This process's knowledge of the observed time of its store.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Observing {
    /// Moment of its last look.
    looked: Option<Moment>,
    /// Result of that look; `None` after a step until the next look.
    found: Option<Found>,
}

#[derive(Clone, Copy, Debug)]
struct Found {
    /// Lead of the database's clock over the observed time.
    ahead: Duration,
    /// The longest life of a key that may still be remembered.
    longest: Option<Duration>,
}

/// Stores that time has passed, and that keys are promised these lives from now on. Must be durable
/// before the first such promise. True once it is.
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
                metrics::clock_ahead(ahead);
                *gateway.observing() =
                    Observing { looked: Some(asked), found: Some(Found { ahead, longest }) };
                return true;
            }
            // Another gateway was faster: it wrote after this look.
            Ok(Written::Lost | Written::GateMoved) => gateway.observing().looked = Some(asked),
            Err(_) => return false,
        }
    }
    false
}

/// Smaller leads are not logged: each restart leaves one.
const LEAD: Duration = Duration::from_secs(60);

/// The journal's kind for a step.
const SUSPECT: &str = "clock-suspect";

/// Takes in a heartbeat's date. A step is counted, logged and journalled. The first date counts
/// only together with the journal of the time before this process. So a restart never makes a
/// suspect clock a trusted one.
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

    /// Time for which the database's clock stays suspect; `None` while it is trusted.
    pub(super) fn clock_suspect_for(&self) -> Option<Duration> {
        let now = self.ports.clock().now();
        self.clock_watch().suspect_for(now)
    }

    pub(super) fn observing(&self) -> MutexGuard<'_, Observing> {
        self.observing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// True once the lead of the database's clock over the observed time is known.
    pub(super) fn has_observed(&self) -> bool {
        self.observing().found.is_some()
    }

    /// Lead of the database's clock over the time that gateways saw pass; `None` until it is known.
    pub(super) fn clock_ahead(&self) -> Option<Duration> {
        self.observing().found.map(|found| found.ahead)
    }

    /// The earliest date that the database's clock may show now; `None` before the first heartbeat.
    /// Statements from whose date a life counts write nothing before it.
    pub(super) fn not_before(&self) -> Option<Date> {
        let now = self.ports.clock().now();
        self.clock_watch().earliest(now)
    }

    /// Compares the date of a won claim with this process's clock. False: hold and life would count
    /// from a date that is off, so nothing may be sent under it (docs/protocol.md#rule-11).
    pub(super) fn is_dated_rightly(&self, at: Date, asked: Moment) -> bool {
        let answered = self.ports.clock().now();
        let Some(step) = self.clock_watch().wrote(Reading { date: at, asked, answered }) else { return true };
        tracing::warn!(
            reason = told(step),
            "a claim shows that the database's clock stepped; it is not sent"
        );
        metrics::clock_stepped();
        metrics::clock_suspect(true);
        false
    }

    /// The right to forget now. `None`: nothing may be forgotten.
    pub(super) fn may_forget(&self) -> Option<MayForget> {
        let ahead = self.clock_ahead();
        forget::may_forget(&self.clock_watch(), ahead, self.ports.clock().now())
    }

    /// The longest life of a key that may still be remembered, by the promises that the store has
    /// kept. `None`: for ever, or not known.
    pub(super) fn longest_life(&self) -> Option<Duration> {
        if removed(Plant::LivesKept) {
            let now = self.promised_lives();
            return now.iter().try_fold(Duration::ZERO, |longest, life| Some(longest.max((*life)?)));
        }
        self.observing().found?.longest
    }

    /// Removes from rows the facts that only a trusted clock can support: that a hold is over, or
    /// the life of an answer. A row's date may show that the clock has stepped since the last
    /// heartbeat. Then the clock is suspect from now on.
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
                // Also where a status came: it does not end its attempt.
                State::Claimed { left, past } | State::InDoubt { status: _, left, past } => {
                    *left = remains.max(*left);
                    *past = Duration::ZERO;
                }
                State::Settled { expired, .. } => *expired = false,
                State::Released | State::Tombstone => {}
            }
        }
    }
}

/// Corrects the life of an answer: one that is over by the database's clock may not be over by
/// observed time.
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
        State::Claimed { left, .. } | State::InDoubt { status: _, left, .. } => left.is_zero(),
        State::Settled { expired, .. } => expired,
        State::Released | State::Tombstone => false,
    }
}
