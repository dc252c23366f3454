//! The health of a region's upstream: checks, when it is sick, and what the region may do.
//!
//! A drain for health is a convenience. It must not leave too few regions, nor take keys from any
//! region when all upstreams are sick.

use std::time::Duration;

use super::time::Moment;

/// Results of checks of one upstream, newest last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Health {
    /// The moment since which every check has failed.
    failing: Option<Moment>,
}

impl Health {
    /// Records a check that ended at `now`.
    pub fn checked(&mut self, well: bool, now: Moment) {
        self.failing = if well { None } else { Some(self.failing.unwrap_or(now)) };
    }

    /// True if the newest check has failed.
    pub fn is_failing(&self) -> bool {
        self.failing.is_some()
    }

    /// The time for which every check has failed.
    pub fn failing_for(&self, now: Moment) -> Option<Duration> {
        self.failing.map(|since| now.since(since))
    }

    /// True if every check has failed for that long.
    pub fn is_sick(&self, sick_after: Duration, now: Moment) -> bool {
        self.failing_for(now).is_some_and(|failing| failing >= sick_after)
    }
}

/// A region's knowledge when its upstream is sick.
#[derive(Clone, Copy, Debug)]
pub struct Facts {
    /// Other regions that serve, own keys, answer, and whose upstream fails no check.
    pub others_well: usize,
    /// Number of regions that must go on serving after a drain.
    pub min_serving: usize,
    /// The time since this region began to serve, if this process has seen that.
    pub serving_for: Option<Duration>,
    /// The time for which a region that came home is not drained again.
    pub cool_down: Duration,
}

/// The reason why a sick upstream drains nothing now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Stays {
    /// No other region is better off, or too few would go on.
    #[error("too few other regions serve with an upstream that is well")]
    TooFew,
    /// The region has just come home.
    #[error("it serves again since a short time only")]
    CoolDown,
}

/// Says whether a region with a sick upstream may drain itself.
pub fn may_drain(facts: &Facts) -> Result<(), Stays> {
    if !may_stay_out(facts.others_well, facts.min_serving) {
        return Err(Stays::TooFew);
    }
    match facts.serving_for {
        Some(serving) if serving < facts.cool_down => Err(Stays::CoolDown),
        Some(_) | None => Ok(()),
    }
}

/// True if a region that does not serve may stay out for its upstream's sake. If too few others are
/// well, a sick upstream is better than none.
pub fn may_stay_out(others_well: usize, min_serving: usize) -> bool {
    others_well >= min_serving.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SICK_AFTER: Duration = Duration::from_secs(10);

    fn at(seconds: u64) -> Moment {
        Moment::from_nanos(seconds * 1_000_000_000)
    }

    #[test]
    fn consecutive_failed_checks_make_an_upstream_sick() {
        let mut health = Health::default();
        assert!(!health.is_sick(Duration::ZERO, at(5)), "nothing was checked");
        for second in 1..=10 {
            health.checked(false, at(second));
            assert!(health.is_failing());
            assert!(!health.is_sick(SICK_AFTER, at(second)), "after {second} s");
        }
        assert!(health.is_sick(SICK_AFTER, at(11)));
        health.checked(true, at(12));
        assert!(!health.is_failing());
        health.checked(false, at(13));
        assert!(!health.is_sick(SICK_AFTER, at(22)) && health.is_sick(SICK_AFTER, at(23)));
    }

    #[test]
    fn a_sick_region_drains_only_if_others_are_well() {
        let facts =
            Facts { others_well: 2, min_serving: 1, serving_for: None, cool_down: Duration::from_secs(60) };
        assert_eq!(may_drain(&facts), Ok(()));
        assert_eq!(may_drain(&Facts { others_well: 0, min_serving: 0, ..facts }), Err(Stays::TooFew));
        assert_eq!(may_drain(&Facts { others_well: 1, min_serving: 2, ..facts }), Err(Stays::TooFew));
        let home = |seconds| Facts { serving_for: Some(Duration::from_secs(seconds)), ..facts };
        assert_eq!(may_drain(&home(59)), Err(Stays::CoolDown));
        assert_eq!(may_drain(&home(60)), Ok(()));
        assert!(may_stay_out(1, 1) && !may_stay_out(0, 1) && !may_stay_out(1, 2));
    }
}
