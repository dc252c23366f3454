//! Observed lag: how far this region's copy is behind another region, measured without comparing
//! clocks (docs/protocol.md#rule-31).
//!
//! Neighbours: `gateway::heartbeat` (feeds it), `ports::replica` (persists the maximum). A peer says "my heartbeat number N was
//! committed A ago"; here N is seen applied at some later moment. So the lag was at most *(seen − reply arrived) + A + round
//! trip*. While N has not arrived the lag counts up by itself, so a stalled link shows. All moments are of this process's boot
//! clock. It must not treat silence as lag: an outage announces nothing, so nothing counts up beyond what was announced.

use std::collections::VecDeque;
use std::time::Duration;

use super::time::Moment;

/// How many announced heartbeats may be open at once; beyond that every other one is dropped, never the oldest.
const OPEN_MAX: usize = 64;
/// The trailing period of the maximum is cut into this many buckets.
const BUCKETS: u32 = 60;

/// Measures the lag behind one origin.
#[derive(Clone, Debug)]
pub struct LagMeter {
    seen: u64,
    /// When the newest one that is here was first seen.
    seen_at: Moment,
    open: VecDeque<Announced>,
    latest: Option<Duration>,
    bucket: Duration,
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
    /// A meter whose maximum covers the trailing `period`.
    pub fn new(period: Duration) -> Self {
        Self {
            seen: 0,
            seen_at: Moment::from_nanos(0),
            open: VecDeque::new(),
            latest: None,
            bucket: period / BUCKETS,
            maxima: VecDeque::new(),
        }
    }

    /// Takes back a persisted maximum: it counts as measured now, so a restarted gateway does not believe in zero.
    pub fn restore(&mut self, maximum: Duration, now: Moment) {
        self.sample(maximum, now);
        self.latest = None;
    }

    /// A ping reply said that heartbeat `seq` was committed `age` before the reply was written; the reply arrived at `arrived`
    /// after a round trip of `round_trip`.
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
            let mut keep = false;
            self.open.retain(|_| {
                keep = !keep;
                keep
            });
        }
        self.open.push_back(Announced { seq, arrived, offset });
    }

    /// The local copy holds heartbeat `seq` now.
    pub fn seen(&mut self, seq: u64, now: Moment) {
        if seq > self.seen {
            (self.seen, self.seen_at) = (seq, now);
        }
        while let Some(first) = self.open.front().copied().filter(|first| first.seq <= self.seen) {
            self.open.pop_front();
            self.sample(now.since(first.arrived).saturating_add(first.offset), now);
        }
    }

    /// The lag as far as is known now: the newest completed sample, or the oldest announced heartbeat that is still missing.
    /// `None` until anything was measured.
    pub fn current(&self, now: Moment) -> Option<Duration> {
        let open = self.open.front().map(|first| now.since(first.arrived).saturating_add(first.offset));
        self.latest.max(open)
    }

    /// The largest lag of the trailing period, counting what is still missing. `None` until anything was measured or restored.
    pub fn maximum(&self, now: Moment) -> Option<Duration> {
        let kept =
            self.maxima.iter().filter(|(at, _)| now.since(*at) <= self.period()).map(|(_, lag)| *lag).max();
        kept.max(self.current(now))
    }

    fn period(&self) -> Duration {
        self.bucket * BUCKETS
    }

    fn sample(&mut self, lag: Duration, now: Moment) {
        self.latest = Some(lag);
        match self.maxima.back_mut() {
            Some((at, max)) if now.since(*at) < self.bucket => *max = lag.max(*max),
            Some(_) | None => self.maxima.push_back((now, lag)),
        }
        while self.maxima.front().is_some_and(|(at, _)| now.since(*at) > self.period()) {
            self.maxima.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Duration = Duration::from_millis;

    fn at(ms: u64) -> Moment {
        Moment::from_nanos(ms * 1_000_000)
    }

    fn meter() -> LagMeter {
        LagMeter::new(Duration::from_secs(600))
    }

    #[test]
    fn nothing_measured_is_not_zero() {
        assert_eq!(meter().current(at(5)), None);
        assert_eq!(meter().maximum(at(5)), None);
    }

    #[test]
    fn a_heartbeat_seen_later_bounds_the_lag_from_above() {
        let mut meter = meter();
        meter.announced(7, MS(20), MS(60), at(1_000));
        assert_eq!(meter.current(at(1_010)), Some(MS(90)), "missing: counts up");
        meter.seen(6, at(1_015));
        assert_eq!(meter.current(at(1_015)), Some(MS(95)), "an older heartbeat completes nothing");
        meter.seen(8, at(1_020));
        assert_eq!(meter.current(at(9_999)), Some(MS(100)), "completed: stays");
    }

    #[test]
    fn a_stalled_link_counts_up_from_the_oldest_missing_heartbeat() {
        let mut meter = meter();
        for beat in 0..1_000 {
            meter.announced(beat + 1, MS(0), MS(10), at(beat * 250));
        }
        assert_eq!(meter.current(at(300_000)), Some(MS(300_010)), "the oldest is never dropped");
    }

    #[test]
    fn an_already_seen_heartbeat_gives_age_plus_round_trip_less_the_time_since() {
        let mut meter = meter();
        meter.seen(9, at(1));
        meter.announced(9, MS(3), MS(4), at(2));
        assert_eq!(meter.current(at(2)), Some(MS(6)), "3 + 4, and it has been here for 1");
    }

    /// The peer's store stopped while its gateway answers on: the age of its last heartbeat grows, its lag does not.
    #[test]
    fn a_store_that_stopped_writing_is_not_late() {
        let mut meter = meter();
        meter.announced(9, MS(20), MS(60), at(1_000));
        meter.seen(9, at(1_010));
        meter.announced(9, MS(4_000), MS(60), at(5_000));
        assert_eq!(meter.current(at(5_000)), Some(MS(70)));
        assert_eq!(meter.maximum(at(5_000)), Some(MS(90)));
    }

    #[test]
    fn the_maximum_trails_and_is_restored() {
        let mut meter = meter();
        meter.restore(MS(900), at(0));
        assert_eq!(meter.maximum(at(1)), Some(MS(900)));
        assert_eq!(meter.current(at(1)), None, "a restored maximum is no current measurement");
        meter.announced(1, MS(0), MS(5), at(599_000));
        meter.seen(1, at(599_000));
        assert_eq!(meter.maximum(at(599_500)), Some(MS(900)));
        assert_eq!(meter.maximum(at(700_000)), Some(MS(5)), "out of the trailing period");
    }
}
