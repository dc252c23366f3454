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
mod tests {
    use super::*;
    use crate::examples::at;

    const RULE: WindowRule =
        WindowRule { percent: 200, floor: Duration::from_secs(1), beyond: Duration::from_secs(60) };

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn window(lag: Option<u64>) -> Window {
        Window::begin(3, lag.map(ms), 7, at(10_000))
    }

    #[test]
    fn the_window_is_a_multiple_of_the_lag() {
        assert_eq!(window(Some(800)).length(&RULE), Some(ms(1_600)));
        assert_eq!(window(Some(100)).length(&RULE), Some(ms(1_000)));
        let longer = window(Some(1_001)).length(&WindowRule { percent: 150, ..RULE });
        assert_eq!(longer, Some(Duration::from_micros(1_501_500)));
        assert_eq!((window(None).length(&RULE), window(Some(1)).at()), (None, 3));
    }

    #[test]
    fn the_window_counts_from_the_adopted_loss() {
        for (case, lag, saw, now, standing) in [
            ("it begins", Some(800), &[][..], 10_000, Standing::Runs(ms(1_600))),
            ("its last millisecond", Some(800), &[], 11_599, Standing::Runs(ms(1))),
            ("its end", Some(800), &[], 11_600, Standing::Over),
            ("nothing was measured", None, &[], 999_999, Standing::Unmeasured),
            ("as long as is not too long", Some(30_000), &[], 70_000, Standing::Over),
            ("it never ends by itself", Some(30_001), &[], 999_999, Standing::Beyond(ms(60_002))),
            ("a heartbeat that was known", Some(800), &[(7, 11_500)], 11_600, Standing::Over),
            ("a late heartbeat", Some(800), &[(8, 11_500)], 11_600, Standing::Runs(ms(700))),
            ("one lag later", Some(800), &[(8, 11_500), (8, 12_000)], 12_300, Standing::Over),
            ("an early heartbeat", Some(800), &[(8, 10_001)], 10_802, Standing::Runs(ms(798))),
        ] {
            let mut window = window(lag);
            saw.iter().for_each(|(seq, then)| window.saw(*seq, at(*then)));
            assert_eq!(window.standing(&RULE, at(now)), standing, "{case}");
        }
        let endless = Window::begin(3, Some(Duration::MAX), 7, at(0));
        assert_eq!(endless.standing(&RULE, at(1)), Standing::Beyond(Duration::MAX / 100));
    }
}
