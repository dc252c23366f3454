//! Trust in the database's clock: compared with this process's boot clock, heartbeat by heartbeat.
//!
//! Holds and retention are judged by the database's wall clock. A clock that steps ahead ends every
//! hold at once: running attempts would be run again and keys forgotten (docs/protocol.md#rule-11).
//! So a clock that stepped is *suspect* for one longest hold ([`ClockWatch`]). This file must not
//! read a clock.

use std::time::Duration;

use super::plant::{Plant, removed};
use super::time::{Date, Drift, Moment};

/// The unit of dates: whole milliseconds.
const ROUNDING: Duration = Duration::from_millis(1);

/// One reading of the database's clock, somewhere between two moments of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// The date that the database's clock showed.
    pub date: Date,
    /// The moment before it was asked.
    pub asked: Moment,
    /// The moment after it had answered.
    pub answered: Moment,
}

impl Reading {
    fn took(&self) -> Duration {
        self.answered.since(self.asked)
    }
}

/// The least distance of the database's clock from its right date.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The clock was ahead: holds end early.
    Ahead(Duration),
    /// The clock was behind: holds end late, and early once it is set right.
    Behind(Duration),
}

/// The comparison of the database's clock D with the boot clock B.
///
/// Over the same span both must have moved equally, but for drift, the fixed margin and the time
/// that the statement took. If not, D is *suspect* for one longest hold, counted on B: every claim
/// from before the step is then over by B as well. A step smaller than the margin goes unseen, as
/// holders keep that margin themselves ([`super::hold`]).
#[derive(Clone, Debug)]
pub struct ClockWatch {
    drift: Drift,
    longest_hold: Duration,
    anchor: Option<Reading>,
    until: Option<Moment>,
}

impl ClockWatch {
    /// A comparison that has seen nothing yet; `longest_hold` of any route, with its settle time.
    pub fn new(drift: Drift, longest_hold: Duration) -> Self {
        Self { drift, longest_hold, anchor: None, until: None }
    }

    /// Takes in that claims are made with this hold and settle time from now on. Those that were
    /// made with a longer one may still be open.
    pub fn covers(&mut self, longest_hold: Duration) {
        self.longest_hold = self.longest_hold.max(longest_hold);
    }

    /// Takes one more reading, as a heartbeat brings it. Says what the step was, if there was one.
    pub fn heard(&mut self, reading: Reading) -> Option<Step> {
        let Some(anchor) = self.anchor else {
            self.anchor = Some(reading);
            return None;
        };
        let step = self.step(&anchor, &reading);
        if step.is_some() {
            self.suspect(reading.answered);
        }
        // A younger anchor is taken if it is as good, so that drift is allowed for over one hold,
        // not over days. A slow anchor never replaces a good one: a step as long as its statement
        // took would go unseen from then on.
        let age = reading.answered.since(anchor.asked);
        let drifted = age.saturating_sub(self.drift.holder(age)).saturating_sub(self.drift.margin);
        let aged = age >= self.longest_hold && reading.took() <= anchor.took() + drifted;
        if step.is_some() || aged || reading.took() <= anchor.took() / 2 {
            self.anchor = Some(reading);
        }
        step
    }

    /// Compares the date at which a row was read, no later than `now`, with the boot clock. That
    /// covers the gap between a step and the next heartbeat. Only a date that is too late can end a
    /// hold early.
    pub fn saw(&mut self, date: Date, now: Moment) -> Option<Step> {
        let anchor = self.anchor?;
        let step = self.ahead(&anchor, date, now)?;
        self.suspect(now);
        Some(step)
    }

    /// Compares the date that a statement wrote between two moments with the boot clock. Holds and
    /// lives count from that date, so it may be off in neither direction. That covers a clock that
    /// is right again before the next heartbeat.
    pub fn wrote(&mut self, written: Reading) -> Option<Step> {
        let anchor = self.anchor.filter(|_| !removed(Plant::DatesHeld))?;
        let step = self.step(&anchor, &written)?;
        self.suspect(written.answered);
        Some(step)
    }

    /// Records that another process found the clock suspect `ago`: a process that has just started
    /// has seen nothing itself.
    pub fn told(&mut self, ago: Duration, now: Moment) {
        let left = self.suspicion().saturating_sub(ago);
        self.until = self.until.max(Some(now + left));
    }

    /// True if there has been a first reading: without one no step can be seen.
    pub fn is_fed(&self) -> bool {
        self.anchor.is_some()
    }

    /// The time in which nothing may rely on a hold that is over; `None` while the clock is
    /// trusted.
    pub fn suspect_for(&self, now: Moment) -> Option<Duration> {
        self.until.map(|until| now.until(until)).filter(|left| !left.is_zero())
    }

    /// The latest date that the database's clock can show at `now`; `None` before the first
    /// reading.
    pub fn latest(&self, now: Moment) -> Option<Date> {
        let anchor = self.anchor.as_ref()?;
        let most = now.since(anchor.asked);
        Some(Date(anchor.date.as_millis().saturating_add(millis(most + self.allowed(most)))))
    }

    /// The earliest date that the database's clock may show from `now` on; `None` before the first
    /// reading. A clock that shows less went back: no life may count from its date.
    pub fn earliest(&self, now: Moment) -> Option<Date> {
        let anchor = self.anchor.as_ref()?;
        if removed(Plant::DatesHeld) {
            return Some(Date(i64::MIN));
        }
        let least = now.since(anchor.answered);
        Some(Date(anchor.date.as_millis().saturating_add(millis(least) - millis(self.allowed(least)))))
    }

    fn suspect(&mut self, since: Moment) {
        self.until = self.until.max(Some(since + self.suspicion()));
    }

    /// The time for which the clock stays suspect: every earlier claim is over by the boot clock
    /// then.
    fn suspicion(&self) -> Duration {
        self.longest_hold + self.allowed(self.longest_hold)
    }

    fn step(&self, anchor: &Reading, reading: &Reading) -> Option<Step> {
        if let Some(step) = self.ahead(anchor, reading.date, reading.answered) {
            return Some(step);
        }
        let least = reading.asked.since(anchor.answered);
        let behind = millis(least) - millis(self.allowed(least)) - passed(anchor.date, reading.date);
        (behind > 0).then(|| Step::Behind(Duration::from_millis(behind.unsigned_abs())))
    }

    fn ahead(&self, anchor: &Reading, date: Date, now: Moment) -> Option<Step> {
        let most = now.since(anchor.asked);
        let ahead = passed(anchor.date, date) - millis(most) - millis(self.allowed(most));
        (ahead > 0).then(|| Step::Ahead(Duration::from_millis(ahead.unsigned_abs())))
    }

    /// The most that the clocks may part over this span.
    fn allowed(&self, span: Duration) -> Duration {
        span.saturating_sub(self.drift.holder(span)).max(self.drift.margin) + ROUNDING
    }
}

fn passed(from: Date, to: Date) -> i64 {
    to.as_millis().saturating_sub(from.as_millis())
}

fn millis(span: Duration) -> i64 {
    // Far below the largest, so that sums of two cannot overflow.
    i64::try_from(span.as_millis()).unwrap_or(i64::MAX).min(i64::MAX / 8)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::examples::at;

    const DRIFT: Drift = Drift { ppm: 1_000, margin: Duration::from_millis(50) };
    const HOLD: Duration = Duration::from_secs(30);

    fn reading(date: i64, asked: u64, took: u64) -> Reading {
        Reading { date: Date(date), asked: at(asked), answered: at(asked + took) }
    }

    fn watch() -> ClockWatch {
        let mut watch = ClockWatch::new(DRIFT, HOLD);
        assert_eq!(watch.heard(reading(1_000_000, 500, 4)), None);
        watch
    }

    #[test]
    fn an_hour_ahead_is_seen_at_once_and_is_suspect_for_one_longest_hold() {
        let mut watch = watch();
        assert_eq!(watch.heard(reading(1_100, 600, 4)), Some(Step::Behind(Duration::from_millis(998_945))));
        let mut watch = self::watch();
        assert_eq!(watch.saw(Date(1_000_100), at(610)), None);
        let hour = 3_600_000;
        assert!(matches!(watch.saw(Date(1_000_100 + hour), at(610)), Some(Step::Ahead(_))));
        assert!(matches!(watch.heard(reading(1_000_120 + hour, 620, 4)), Some(Step::Ahead(_))));
        assert_eq!(watch.heard(reading(1_000_220 + hour, 720, 4)), None, "one step is told once");
        assert!(watch.suspect_for(at(624 + 30_000)).is_some());
        assert_eq!(watch.suspect_for(at(624 + 30_000 + 81)), None);
    }

    #[test]
    fn before_the_first_reading_nothing_can_be_said() {
        let mut watch = ClockWatch::new(DRIFT, HOLD);
        assert_eq!((watch.saw(Date(i64::MAX), at(1)), watch.latest(at(1))), (None, None));
    }

    /// A heartbeat waits for two seconds just when the anchor is due to be renewed. Behind it is a
    /// step of a second and a half.
    #[test]
    fn a_slow_heartbeat_hides_no_step() {
        let mut watch = watch();
        let aged = 500 + 30_000;
        let heard = watch.heard(reading(1_000_000 + 31_900, aged, 2_000));
        assert_eq!(heard, None, "it was read at the very end");
        let later = aged + 2_100;
        assert_eq!(watch.saw(Date(1_000_000 + 32_100), at(later)), None);
        assert!(matches!(watch.saw(Date(1_000_000 + 32_100 + 1_500), at(later)), Some(Step::Ahead(_))));
    }

    #[test]
    fn a_step_within_the_margin_is_not_seen() {
        let mut watch = watch();
        assert_eq!(watch.heard(reading(1_000_000 + 100 + 40, 600, 4)), None);
        assert!(matches!(watch.heard(reading(1_000_000 + 200 + 140, 700, 4)), Some(Step::Ahead(_))));
    }

    /// The first statement of a process opens its connection and says little. The next one is
    /// believed at once.
    #[test]
    fn a_slow_first_heartbeat_hides_no_step() {
        let mut watch = ClockWatch::new(DRIFT, HOLD);
        assert_eq!(watch.heard(reading(1_000_000, 0, 2_000)), None);
        assert_eq!(watch.heard(reading(1_000_200, 2_150, 4)), None);
        assert!(matches!(watch.saw(Date(1_000_300 + 1_500), at(2_250)), Some(Step::Ahead(_))));
    }

    /// A clock that is years off for an instant, between two heartbeats, dated a claim.
    #[test]
    fn a_date_that_was_written_may_be_off_in_neither_direction() {
        let year = 31_536_000_000;
        for off in [year, -year, 200, -200] {
            let mut watch = watch();
            assert_eq!(watch.wrote(reading(1_000_100, 600, 4)), None);
            let step = watch.wrote(reading(1_000_140 + off, 640, 4));
            assert_eq!(matches!(step, Some(Step::Ahead(_))), off > 0, "{step:?}");
            assert_eq!(matches!(step, Some(Step::Behind(_))), off < 0, "{step:?}");
            assert!(watch.suspect_for(at(644 + 30_000)).is_some());
            assert_eq!(watch.heard(reading(1_000_200, 700, 4)), None, "a heartbeat does not see it");
            assert!(watch.suspect_for(at(644 + 30_000)).is_some());
            assert_eq!(watch.suspect_for(at(644 + 30_081)), None);
        }
    }

    #[test]
    fn the_earliest_date_follows_the_boot_clock() {
        assert_eq!(watch().earliest(at(10_504)), Some(Date(1_010_000 - 61)));
        assert_eq!(ClockWatch::new(DRIFT, HOLD).earliest(at(1)), None);
    }

    #[test]
    fn a_second_step_is_suspect_for_as_long_again() {
        let mut watch = watch();
        assert!(watch.heard(reading(1_000_100 + 3_600_000, 600, 4)).is_some());
        assert!(watch.heard(reading(1_020_100, 20_600, 4)).is_some());
        assert!(watch.suspect_for(at(20_604 + 30_000)).is_some());
        assert_eq!(watch.suspect_for(at(20_604 + 30_081)), None);
    }

    /// A store that became slow for good is an anchor again, once it says no less than drift leaves
    /// of the old one.
    #[test]
    fn an_anchor_does_not_grow_old_for_ever() {
        let mut watch = watch();
        for beat in 1..=100 {
            let asked = 500 + beat * 1_000;
            assert_eq!(watch.heard(reading(1_000_000 + asked as i64 - 450, asked, 50)), None);
        }
        assert!(watch.anchor.is_some_and(|anchor| anchor.took() == Duration::from_millis(50)));
    }

    /// The schedule of docs/protocol.md#rule-11 with a restart in it: the process that saw the step
    /// is gone, and the next one has nothing to compare with.
    #[test]
    fn a_step_that_another_process_saw_counts_here_too() {
        let mut watch = ClockWatch::new(DRIFT, HOLD);
        assert!(!watch.is_fed());
        watch.told(Duration::from_secs(20), at(100));
        assert_eq!(watch.heard(reading(1_000_000, 100, 4)), None);
        assert!(watch.is_fed());
        assert!(watch.suspect_for(at(100 + 10_000)).is_some());
        assert_eq!(watch.suspect_for(at(100 + 10_000 + 81)), None);
        watch.told(HOLD * 2, at(100 + 10_000));
        assert_eq!(watch.suspect_for(at(100 + 10_000 + 81)), None, "long over");
    }

    #[test]
    fn the_latest_date_follows_the_boot_clock() {
        assert_eq!(watch().latest(at(10_500)), Some(Date(1_010_000 + 61)));
    }

    proptest! {
        /// Clocks that drift within the allowance never part, whatever time statements take.
        #[test]
        fn clocks_that_run_alike_are_trusted(
            ppm in -1_000_i64..=1_000, beats in proptest::collection::vec((1_u64..5_000, 0_u64..3_000, 0.0_f64..=1.0), 1..200)
        ) {
            let mut watch = ClockWatch::new(DRIFT, HOLD);
            let mut now = 0_u64;
            for (pause, took, part) in beats {
                now += pause;
                let read = now as f64 + part * took as f64;
                let date = Date((read * (1.0 + ppm as f64 / 1e6)).floor() as i64);
                let reading = Reading { date, asked: at(now), answered: at(now + took) };
                prop_assert_eq!(watch.heard(reading), None);
                prop_assert_eq!(watch.saw(date, at(now + took)), None);
                prop_assert_eq!(watch.wrote(reading), None);
                prop_assert!(watch.earliest(at(now)).is_some_and(|earliest| earliest <= date));
                prop_assert!(watch.latest(at(now + took)).is_some_and(|latest| latest >= date));
                now += took;
            }
        }

        /// The next heartbeat sees a step beyond the margin and the statement's own time, in either
        /// direction.
        #[test]
        fn a_step_is_seen(ahead: bool, step in 200_i64..10_000_000, beats in 1_u64..500, took in 0_u64..20) {
            let mut watch = ClockWatch::new(DRIFT, HOLD);
            for beat in 0..beats {
                prop_assert_eq!(watch.heard(reading(5_000_000_000 + (beat * 100) as i64, beat * 100, took)), None);
            }
            let step = if ahead { step } else { -step };
            let told = watch.heard(reading(5_000_000_000 + (beats * 100) as i64 + step, beats * 100, took));
            prop_assert!(matches!((told, ahead), (Some(Step::Ahead(_)), true) | (Some(Step::Behind(_)), false)), "{:?}", told);
        }
    }
}
