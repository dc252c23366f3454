//! The window: the wait of a successor after a loss, before it may run keys without a record here
//! (docs/protocol.md#rule-31).
//!
//! The lag is frozen when the loss is adopted: the outage is not lag. All moments are of this
//! process's boot clock: a process that restarts begins again from zero.

use std::time::Duration;

use super::time::Moment;

/// The rule for the wait, as all regions agree in `ring.toml`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowRule {
    /// Hundredths of the observed lag: 200 waits twice as long.
    pub percent: u32,
    /// Never less than this.
    pub floor: Duration,
    /// Above this nothing opens by itself: an operator has to accept the risk.
    pub beyond: Duration,
}

/// The wait after the loss of one region.
#[derive(Clone, Debug)]
pub struct Window {
    /// The epoch that declared it lost.
    at: u64,
    begun: Moment,
    lag: Option<Duration>,
    /// The last moment at which its heartbeat moved here since then.
    advanced: Option<Moment>,
    applied: u64,
}

/// The state of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// The window is over.
    Over,
    /// The window ends in this time.
    Runs(Duration),
    /// The window would be this long, beyond the bound: closed until an operator accepts the risk.
    Beyond(Duration),
    /// Nothing was ever measured: closed until an operator accepts the risk.
    Unmeasured,
}

impl Window {
    /// Begins when the view that lost the region is durably adopted here. `lag` is the largest one
    /// observed up to the last contact.
    pub fn begin(at: u64, lag: Option<Duration>, applied: u64, now: Moment) -> Self {
        Self { at, begun: now, lag, advanced: None, applied }
    }

    /// The epoch that declared the region lost.
    pub fn at(&self) -> u64 {
        self.at
    }

    /// Records the lost region's heartbeat here: if it still moves, its rows do too.
    pub fn saw(&mut self, seq: u64, now: Moment) {
        if seq > self.applied {
            self.applied = seq;
            self.advanced = Some(now);
        }
    }

    /// The whole length; `None` if nothing was measured.
    pub fn length(&self, rule: &WindowRule) -> Option<Duration> {
        Some((self.lag?.saturating_mul(rule.percent) / 100).max(rule.floor))
    }

    /// The state at `now`.
    pub fn standing(&self, rule: &WindowRule, now: Moment) -> Standing {
        let (Some(lag), Some(window)) = (self.lag, self.length(rule)) else { return Standing::Unmeasured };
        if window > rule.beyond {
            return Standing::Beyond(window);
        }
        let end = self.begun + window;
        let end = self.advanced.map_or(end, |moved| end.max(moved + lag));
        if now >= end { Standing::Over } else { Standing::Runs(now.until(end)) }
    }
}

#[cfg(test)]
mod tests;
