//! Observed lag: the delay of this region's copy behind another region, measured without comparing
//! clocks (docs/protocol.md#rule-31).
//!
//! All moments are of this process's boot clock. While an announced heartbeat has not arrived the
//! lag counts up by itself, so a stalled link shows. This file must not treat silence as lag: an
//! outage announces nothing, so nothing counts up beyond the last announcement.

use std::collections::VecDeque;
use std::time::Duration;

use super::time::Moment;

/// Number of announced heartbeats open at once. Beyond it every other one goes, never the oldest.
const OPEN_MAX: usize = 64;
/// The trailing period of the maximum.
pub const PERIOD: Duration = Duration::from_secs(600);
/// A part of it, of which the largest lag is kept.
const BUCKET: Duration = Duration::from_secs(10);

/// Measures the lag behind one origin.
///
/// A peer says "my heartbeat number N was committed A ago", and N is seen applied here later. So
/// the lag was at most *(seen − reply arrived) + A + round trip*.
#[derive(Clone, Debug, Default)]
pub struct LagMeter {
    seen: u64,
    /// The moment when the newest heartbeat that is here was first seen.
    seen_at: Moment,
    open: VecDeque<Announced>,
    latest: Option<Duration>,
    maxima: VecDeque<(Moment, Duration)>,
}

#[derive(Clone, Copy, Debug)]
struct Announced {
    seq: u64,
    arrived: Moment,
    /// Age of the heartbeat when the reply was written, plus the round trip.
    offset: Duration,
}

impl LagMeter {
    /// Restores a persisted maximum, as if measured now: a restarted gateway believes in no zero.
    pub fn restore(&mut self, maximum: Duration, now: Moment) {
        self.sample(maximum, now);
        self.latest = None;
    }

    /// Records a ping reply that arrived at `arrived` after a round trip of `round_trip`. Heartbeat
    /// `seq` was committed `age` before the peer wrote the reply.
    pub fn announced(&mut self, seq: u64, age: Duration, round_trip: Duration, arrived: Moment) {
        let offset = age.saturating_add(round_trip);
        if seq <= self.seen {
            // It has been here for a while: a store that stopped writing is old, not late.
            self.sample(offset.saturating_sub(arrived.since(self.seen_at)), arrived);
            return;
        }
        if self.open.back().is_some_and(|last| last.seq >= seq) {
            return;
        }
        if self.open.len() >= OPEN_MAX {
            self.open = self.open.iter().copied().step_by(2).collect();
        }
        self.open.push_back(Announced { seq, arrived, offset });
    }

    /// Records that the local copy holds heartbeat `seq` now.
    pub fn seen(&mut self, seq: u64, now: Moment) {
        if seq > self.seen {
            (self.seen, self.seen_at) = (seq, now);
        }
        while let Some(first) = self.open.front().copied().filter(|first| first.seq <= self.seen) {
            self.open.pop_front();
            self.sample(now.since(first.arrived).saturating_add(first.offset), now);
        }
    }

    /// The lag as known now: the newest completed sample, or the oldest announced heartbeat that is
    /// still missing. `None` until anything was measured.
    pub fn current(&self, now: Moment) -> Option<Duration> {
        let open = self.open.front().map(|first| now.since(first.arrived).saturating_add(first.offset));
        self.latest.max(open)
    }

    /// The largest lag of the trailing period, missing heartbeats included. `None`: not measured.
    pub fn maximum(&self, now: Moment) -> Option<Duration> {
        let kept = self.maxima.iter().filter(|(at, _)| now.since(*at) <= PERIOD).map(|(_, lag)| *lag).max();
        kept.max(self.current(now))
    }

    fn sample(&mut self, lag: Duration, now: Moment) {
        self.latest = Some(lag);
        match self.maxima.back_mut() {
            Some((at, max)) if now.since(*at) < BUCKET => *max = lag.max(*max),
            Some(_) | None => self.maxima.push_back((now, lag)),
        }
        while self.maxima.front().is_some_and(|(at, _)| now.since(*at) > PERIOD) {
            self.maxima.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::examples::at;

    const MS: fn(u64) -> Duration = Duration::from_millis;

    #[test]
    fn a_heartbeat_seen_later_bounds_the_lag_from_above() {
        let mut meter = LagMeter::default();
        assert_eq!((meter.current(at(5)), meter.maximum(at(5))), (None, None), "this is not zero");
        meter.announced(7, MS(20), MS(60), at(1_000));
        assert_eq!(meter.current(at(1_010)), Some(MS(90)), "missing: counts up");
        meter.seen(6, at(1_015));
        assert_eq!(meter.current(at(1_015)), Some(MS(95)), "an older heartbeat completes nothing");
        meter.seen(8, at(1_020));
        assert_eq!(meter.current(at(9_999)), Some(MS(100)), "completed: stays");
    }

    #[test]
    fn a_stalled_link_counts_up_from_the_oldest_missing_heartbeat() {
        let mut meter = LagMeter::default();
        for beat in 0..1_000 {
            meter.announced(beat + 1, MS(0), MS(10), at(beat * 250));
        }
        assert_eq!(meter.current(at(300_000)), Some(MS(300_010)), "the oldest is never dropped");
    }

    /// The peer's gateway still answers: the age of its last heartbeat grows, its lag does not.
    #[test]
    fn a_store_that_stopped_writing_is_not_late() {
        let mut meter = LagMeter::default();
        meter.announced(9, MS(20), MS(60), at(1_000));
        meter.seen(9, at(1_010));
        meter.announced(9, MS(4_000), MS(60), at(5_000));
        assert_eq!(meter.current(at(5_000)), Some(MS(70)));
        assert_eq!(meter.maximum(at(5_000)), Some(MS(90)));
    }

    #[test]
    fn a_repeated_heartbeat_announcement_counts_once() {
        let mut meter = LagMeter::default();
        meter.announced(7, MS(0), MS(10), at(1_000));
        meter.announced(7, MS(0), MS(10), at(2_000));
        meter.announced(6, MS(0), MS(10), at(2_000));
        assert_eq!(meter.open.len(), 1);
        meter.announced(8, MS(0), MS(10), at(2_000));
        meter.seen(7, at(2_000));
        assert_eq!(meter.current(at(3_000)), Some(MS(1_010)), "8 is missing since then");
        meter.seen(8, at(4_000));
        meter.seen(8, at(5_000));
        meter.seen(7, at(5_000));
        assert_eq!((meter.seen, meter.seen_at), (8, at(4_000)), "when the newest was seen first");
    }

    #[test]
    fn the_number_of_open_heartbeats_is_bounded() {
        let mut meter = LagMeter::default();
        for beat in 1..=OPEN_MAX as u64 {
            meter.announced(beat, MS(0), MS(10), at(beat));
        }
        assert_eq!(meter.open.len(), OPEN_MAX);
        meter.announced(9_999, MS(0), MS(10), at(9_999));
        assert_eq!(meter.open.len(), OPEN_MAX.div_ceil(2) + 1, "every second one is left out");
        assert_eq!((meter.open[0].seq, meter.open[1].seq), (1, 3), "and never the oldest");
        // A sample a second for three periods.
        for second in 0..1_800 {
            meter.sample(MS(second), at(second * 1_000));
            assert!(meter.maxima.len() <= 61, "a bucket of ten seconds each");
        }
        assert_eq!(meter.maximum(at(1_800_000)), Some(MS(1_800_000 - 1 + 10)), "the oldest one is missing");
    }

    #[test]
    fn a_maximum_lasts_a_period_from_when_it_was_measured() {
        let mut meter = LagMeter::default();
        meter.sample(MS(5), at(0));
        meter.sample(MS(900), at(599_000));
        assert_eq!(meter.maximum(at(700_000)), Some(MS(900)));
        let bucket = BUCKET.as_millis() as u64;
        meter.sample(MS(1), at(599_000 + bucket - 1));
        let all = meter.maxima.len();
        meter.sample(MS(2), at(599_000 + bucket));
        assert_eq!(meter.maxima.len(), all + 1, "a bucket ends when its length is over");
    }

    #[test]
    fn the_maximum_trails_and_is_restored() {
        let mut meter = LagMeter::default();
        meter.restore(MS(900), at(0));
        assert_eq!(meter.maximum(at(1)), Some(MS(900)));
        assert_eq!(meter.maximum(at(600_000)), Some(MS(900)), "to the end of the period");
        assert_eq!(meter.current(at(1)), None, "a restored maximum is no current measurement");
        meter.announced(1, MS(0), MS(5), at(599_000));
        meter.seen(1, at(599_000));
        assert_eq!(meter.maximum(at(599_500)), Some(MS(900)));
        assert_eq!(meter.maximum(at(700_000)), Some(MS(5)), "out of the trailing period");
    }
}
