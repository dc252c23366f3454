//! The observed lag behind one peer over the last quarter of an hour, for people.
//!
//! The history lives in this process, begins empty and is bounded. Windows go by `protocol::lag`
//! instead.

use std::collections::VecDeque;
use std::time::Duration;

use crate::protocol::time::Moment;

const EVERY: Duration = Duration::from_secs(5);
/// Points, at most: a quarter of an hour.
const MOST: usize = 180;

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TrailPoint {
    /// Time since it began; it lasts for five seconds at most.
    pub age: Duration,
    /// The largest lag within it; `None` if the peer was silent, or nothing was measured.
    pub lag: Option<Duration>,
}

/// Points of one peer's lag, oldest first.
#[derive(Clone, Debug, Default)]
pub struct LagHistory(VecDeque<(Moment, Option<Duration>)>);

impl LagHistory {
    pub fn sample(&mut self, now: Moment, lag: Option<Duration>) {
        match self.0.back_mut() {
            Some((begun, largest)) if now.since(*begun) < EVERY => *largest = lag.max(*largest),
            Some(_) | None => self.0.push_back((now, lag)),
        }
        while self.0.len() > MOST {
            self.0.pop_front();
        }
    }

    pub fn points(&self, now: Moment) -> Vec<TrailPoint> {
        self.0.iter().map(|(begun, lag)| TrailPoint { age: now.since(*begun), lag: *lag }).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::examples::at;

    const MS: fn(u64) -> Duration = Duration::from_millis;

    #[test]
    fn a_point_keeps_the_largest_and_silence_is_a_gap() {
        let mut trail = LagHistory::default();
        for (ms, lag) in [(0, Some(MS(20))), (1_000, Some(MS(900))), (4_999, Some(MS(30)))] {
            trail.sample(at(ms), lag);
        }
        trail.sample(at(5_000), None);
        trail.sample(at(10_000), Some(MS(40)));
        trail.sample(at(11_000), None);
        let found: Vec<_> = trail.points(at(12_000)).iter().map(|point| (point.age, point.lag)).collect();
        let expected = [(MS(12_000), Some(MS(900))), (MS(7_000), None), (MS(2_000), Some(MS(40)))];
        assert_eq!(found, expected);
    }

    #[test]
    fn a_trail_is_bounded_and_forgets_the_oldest() {
        let mut trail = LagHistory::default();
        for second in 0..3_600 {
            trail.sample(at(second * 1_000), Some(MS(second)));
        }
        let points = trail.points(at(3_600_000));
        assert_eq!(points.len(), MOST);
        assert!(points[0].age <= EVERY * MOST as u32 && points[0].age > EVERY * (MOST as u32 - 2));
    }
}
