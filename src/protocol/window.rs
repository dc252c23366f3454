//! The window: how long a successor waits after an unclean takeover before it may run keys that it
//! has no record of (docs/protocol.md#rule-31).
//!
//! Neighbours: [`super::lag`] measures, [`super::opening`] asks whether it is over,
//! `gateway::authority` keeps one per lost region. The lag is frozen when the loss is adopted: the
//! outage is not lag (docs/protocol.md#rule-31). All moments are of this process's boot clock: a
//! process that restarts begins again from zero. It must not read a clock.

use std::time::Duration;

use super::time::Moment;

/// How long to wait, as all regions agree in `ring.toml`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowRule {
    /// Hundredths of the observed lag: 200 waits twice as long.
    pub percent: u32,
    /// Never less than this.
    pub floor: Duration,
    /// Above this nothing opens by itself: an operator accepts the risk.
    pub beyond: Duration,
}

/// The wait after the loss of one region.
#[derive(Clone, Debug)]
pub struct Window {
    /// The epoch that declared it lost.
    at: u64,
    begun: Moment,
    lag: Option<Duration>,
    /// The last time its heartbeat moved here since.
    advanced: Option<Moment>,
    applied: u64,
}

/// How a window stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It is over.
    Over,
    /// It ends in this long.
    Runs {
        /// What is left.
        left: Duration,
    },
    /// It would be longer than `beyond`: closed until an operator accepts the risk.
    Beyond {
        /// How long it would be.
        window: Duration,
    },
    /// Nothing was ever measured, so no multiple of it says anything: closed until an operator accepts the risk.
    Unmeasured,
}

impl Window {
    /// Begins when the view that lost the region is durably adopted here. `lag` is the largest observed up to the last contact.
    pub fn begin(at: u64, lag: Option<Duration>, applied: u64, now: Moment) -> Self {
        Self { at, begun: now, lag, advanced: None, applied }
    }

    /// The epoch that declared the region lost.
    pub fn at(&self) -> u64 {
        self.at
    }

    /// The lag it goes by.
    pub fn lag(&self) -> Option<Duration> {
        self.lag
    }

    /// The lost region's heartbeat stands at `seq` here: if it still moves, its rows do too.
    pub fn saw(&mut self, seq: u64, now: Moment) {
        if seq > self.applied {
            self.applied = seq;
            self.advanced = Some(now);
        }
    }

    /// How long the whole of it is; `None` if nothing was measured.
    pub fn length(&self, rule: &WindowRule) -> Option<Duration> {
        Some((self.lag?.saturating_mul(rule.percent) / 100).max(rule.floor))
    }

    /// How it stands at `now`.
    pub fn standing(&self, rule: &WindowRule, now: Moment) -> Standing {
        let (Some(lag), Some(window)) = (self.lag, self.length(rule)) else { return Standing::Unmeasured };
        if window > rule.beyond {
            return Standing::Beyond { window };
        }
        let end = self.begun + window;
        let end = self.advanced.map_or(end, |moved| end.max(moved + lag));
        if now >= end { Standing::Over } else { Standing::Runs { left: now.until(end) } }
    }
}

#[cfg(test)]
mod tests;
