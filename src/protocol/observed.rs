//! Observed time: the one clock by which a store judges holds, settle times, lives and jobs
//! (docs/protocol.md#rule-11).
//!
//! Each store counts the milliseconds that its gateways saw pass. A heartbeat adds what passed by
//! the gateway's boot clock since it last saw the counter at its present value. So no second is
//! counted twice, and none that nobody watched. A date is compared with nothing.

use std::time::Duration;

use super::time::Moment;

/// A reading of a store's counter, in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Observed(pub u64);

/// The time that a heartbeat adds to the counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Passed {
    /// The value at which the counter must still stand; `None`: nothing is added.
    pub from: Option<Observed>,
    /// The time that passed since, in whole milliseconds.
    pub by: Duration,
    /// The most that the next heartbeat may add. What begins now begins so much later.
    pub step: Duration,
}

/// The counter as one gateway knows it, and its own moment of that knowledge.
#[derive(Clone, Copy, Debug, Default)]
pub struct Watch {
    known: Option<(Observed, Moment)>,
}

impl Watch {
    /// The time that a heartbeat of now adds: never more than `step`.
    pub fn passed(&self, asked: Moment, step: Duration) -> Passed {
        let Some((from, since)) = self.known else { return Passed { from: None, by: Duration::ZERO, step } };
        let passed = u64::try_from(asked.since(since).as_millis()).unwrap_or(u64::MAX);
        Passed { from: Some(from), by: Duration::from_millis(passed).min(step), step }
    }

    /// Takes in the answer to a heartbeat: the counter's value, and whether it counted what passed.
    /// If not, another gateway counted, up to a moment before this answer.
    pub fn heard(
        &mut self,
        passed: Passed,
        counted: bool,
        observed: Observed,
        asked: Moment,
        answered: Moment,
    ) {
        let until = match self.known {
            // What is left over counts with the next heartbeat, unless nobody may count so much.
            Some((_, since)) if counted && passed.by < passed.step => since + passed.by,
            Some(_) if counted => asked,
            Some(_) | None => answered,
        };
        self.known = Some((observed, until));
    }

    /// Forgets the counter: what the last heartbeat counted is not known, or the store went back.
    pub fn lost(&mut self) {
        self.known = None;
    }
}

/// The next value of the counter, as the store's statement computes it.
///
/// `step` is the most that the heartbeat before allowed. True if it counted.
pub fn next(was: Observed, passed: &Passed, step: Duration) -> (Observed, bool) {
    let counted = passed.from == Some(was);
    let by = u64::try_from(passed.by.min(step).as_millis()).unwrap_or(u64::MAX);
    (Observed(if counted { was.0.saturating_add(by) } else { was.0 }), counted)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::examples::at;

    const STEP: Duration = Duration::from_millis(500);

    /// One heartbeat of this gateway at this store: its statement took effect in the middle.
    fn beats(watch: &mut Watch, store: &mut Observed, asked: u64, took: u64) {
        let passed = watch.passed(at(asked), STEP);
        let (now, counted) = next(*store, &passed, STEP);
        *store = now;
        watch.heard(passed, counted, now, at(asked), at(asked + took));
    }

    #[test]
    fn the_counter_follows_the_boot_clock_from_the_second_heartbeat_on() {
        let (mut watch, mut store) = (Watch::default(), Observed(7));
        beats(&mut watch, &mut store, 1_000, 10);
        assert_eq!(store, Observed(7), "nobody watched before");
        for beat in 1..=10 {
            beats(&mut watch, &mut store, 1_000 + beat * 250, 30);
        }
        assert_eq!(store, Observed(7 + 2_490), "what a statement takes is counted");
    }

    #[test]
    fn time_that_nobody_watched_counts_for_nothing() {
        let (mut watch, mut store) = (Watch::default(), Observed(0));
        beats(&mut watch, &mut store, 0, 0);
        beats(&mut watch, &mut store, 250, 0);
        watch.lost();
        beats(&mut watch, &mut store, 3_600_000, 0);
        assert_eq!(store, Observed(250), "a restart, or a heartbeat that is not confirmed");
        beats(&mut watch, &mut store, 7_200_000, 0);
        assert_eq!(store, Observed(250 + 500), "at most one step for each heartbeat");
    }

    #[test]
    fn two_gateways_never_count_the_same_second() {
        let (mut one, mut other, mut store) = (Watch::default(), Watch::default(), Observed(0));
        for beat in 0..100 {
            beats(&mut one, &mut store, beat * 250, 5);
            beats(&mut other, &mut store, beat * 250 + 125, 5);
        }
        assert_eq!(store, Observed(99 * 250 - 5), "the second follows the first");
        for beat in 100..110 {
            beats(&mut other, &mut store, beat * 250 + 125, 5);
        }
        assert!(
            store > Observed(108 * 250 - 125) && store <= Observed(109 * 250),
            "and goes on alone: {store:?}"
        );
    }

    proptest! {
        /// Whatever gateways do, the counter moves no more over any span than time did, and one
        /// step: so what began at the counter plus one step ends no earlier than by any boot clock.
        #[test]
        fn the_counter_never_outruns_time(
            beats in proptest::collection::vec((0_usize..3, 0_u64..2_000, 0_u64..400, 0.0_f64..=1.0, 0_u8..10), 1..80)
        ) {
            let mut watches = [Watch::default(); 3];
            let (mut store, mut now) = (Observed(0), 0_u64);
            // The counter and the time of each change.
            let mut seen = vec![(Observed(0), 0_u64)];
            for (which, pause, took, part, fate) in beats {
                now += pause;
                let passed = watches[which].passed(at(now), STEP);
                let written = now + (took as f64 * part) as u64;
                let (next, counted) = next(store, &passed, STEP);
                store = next;
                match fate {
                    0 => watches[which].lost(),
                    _ => watches[which].heard(passed, counted, next, at(now), at(now + took)),
                }
                for (began, then) in &seen {
                    prop_assert!(store.0 - began.0 <= written - then + 500, "{store:?} at {written}, {began:?} at {then}");
                }
                seen.push((store, written));
                now += took;
            }
        }
    }
}
