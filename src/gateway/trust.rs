//! Whether the database's clock is to be believed: fed by heartbeats and by every row whose hold is judged.
//!
//! Neighbours: `protocol::suspect` compares the clocks; [`super::heartbeat`] brings readings and journals steps; [`super::ending::read`] has
//! each row pass through here before anybody asks what it means. While the clock is suspect no hold is over and no answer expires, so nothing is
//! recovered, released as "did not happen", reaped or swept. It must not end early: after one longest hold
//! and settle time, by the boot clock.

use std::sync::{MutexGuard, PoisonError};
use std::time::Duration;

use super::{Gateway, Settings, metrics};
use crate::ports::{Clock, Ports, Upkeep};
use crate::protocol::record::{Row, State};
use crate::protocol::suspect::{ClockWatch, Reading, Step};
use crate::protocol::time::{Date, Moment};

/// A watch over the database's clock, before its first reading.
pub(super) fn watch(settings: &Settings) -> ClockWatch {
    // The settle time too: "did not happen" is counted from the end of the hold.
    let holds = settings.routes.policies().map(|policy| policy.hold + policy.settle_time);
    ClockWatch::new(settings.drift, holds.max().unwrap_or_default())
}

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

    /// Until which date of the database's clock something may be forgotten: not by that clock alone, which between a step and the next
    /// heartbeat would take everything along. `None`: nothing may be.
    pub(super) fn forgets_until(&self) -> Option<Date> {
        let now = self.ports.clock().now();
        let watch = self.clock_watch();
        match watch.suspect_for(now) {
            None => watch.latest(now),
            Some(_) => None,
        }
    }

    /// Takes from rows what only a trusted clock may say: that a hold is over, or the life of an answer. Rows whose date shows that the clock
    /// has stepped since the last heartbeat make it suspect here and now.
    pub(super) fn distrust(&self, rows: &mut [Row]) {
        let now = self.ports.clock().now();
        let mut watch = self.clock_watch();
        for row in rows.iter().filter(|row| relies_on_the_clock(row)) {
            saw(&mut watch, row.seen, now);
        }
        let Some(remains) = watch.suspect_for(now) else { return };
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
