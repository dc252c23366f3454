//! The meaning of an upstream's status for the effect: the three outcome sets of a route
//! (docs/protocol.md#rule-13).
//!
//! A status that is in no set leaves the key in doubt. This file must not know HTTP types.

use std::fmt;

/// The knowledge about the effect after the upstream's status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The answer is final: settle it and replay it from now on.
    Final,
    /// The upstream surely did nothing: release the claim, a retry runs again.
    NothingHappened,
    /// The effect may or may not have happened: in doubt.
    Unknown,
}

/// The statuses of a route that mean "final" and "nothing happened"; every other status is unknown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutcomeSets {
    finals: StatusSet,
    nothing: StatusSet,
    /// Statuses that mean "nothing happened" only beside `Retry-After`. A proxy answers 503 also
    /// when a connection broke after the request was sent. But a service that turned a request away
    /// says when to come back.
    nothing_if_told_when: StatusSet,
}

/// The reason why two outcome sets cannot be used together.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OutcomeSetsError {
    /// One status is in both sets.
    #[error("status {0} is listed both as final and as nothing-happened: decide which")]
    Both(u16),
}

impl OutcomeSets {
    /// Builds the sets of a route.
    ///
    /// # Errors
    /// A status is final and also means that nothing happened.
    pub fn new(
        finals: StatusSet,
        nothing: StatusSet,
        nothing_if_told_when: StatusSet,
    ) -> Result<Self, OutcomeSetsError> {
        let both = |status: &u16| {
            let nothing = nothing.contains(*status) || nothing_if_told_when.contains(*status);
            finals.contains(*status) && nothing
        };
        match (100..=599).find(both) {
            Some(status) => Err(OutcomeSetsError::Both(status)),
            None => Ok(Self { finals, nothing, nothing_if_told_when }),
        }
    }

    /// Classifies one status; `told_when` says whether `Retry-After` stood beside it.
    pub fn classify(&self, status: u16, told_when: bool) -> Outcome {
        if self.nothing.contains(status) || (told_when && self.nothing_if_told_when.contains(status)) {
            Outcome::NothingHappened
        } else if self.finals.contains(status) {
            Outcome::Final
        } else {
            Outcome::Unknown
        }
    }
}

impl Default for OutcomeSets {
    /// Final: 2xx, 3xx and 4xx but for 408 and those below. Nothing happened: 401, 403, 421, 425,
    /// 429, and 503 with `Retry-After`.
    fn default() -> Self {
        let nothing = StatusSet::of(&[401, 403, 421, 425, 429]);
        let mut finals = StatusSet::default();
        for status in 200..=499 {
            if status != 408 && !nothing.contains(status) {
                finals.insert(status);
            }
        }
        Self { finals, nothing, nothing_if_told_when: StatusSet::of(&[503]) }
    }
}

/// A set of statuses between 100 and 599, as bits.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct StatusSet([u64; 8]);

impl StatusSet {
    /// The set of these statuses; those outside 100..=599 are left out.
    pub fn of(statuses: &[u16]) -> Self {
        let mut set = Self::default();
        for status in statuses {
            set.insert(*status);
        }
        set
    }

    /// Adds one status; one outside 100..=599 is ignored, as no upstream can answer it.
    pub fn insert(&mut self, status: u16) {
        if (100..=599).contains(&status) {
            let bit = usize::from(status - 100);
            self.0[bit / 64] |= 1 << (bit % 64);
        }
    }

    /// True if `status` is in the set.
    pub fn contains(&self, status: u16) -> bool {
        if !(100..=599).contains(&status) {
            return false;
        }
        let bit = usize::from(status - 100);
        self.0[bit / 64] & (1 << (bit % 64)) != 0
    }
}

impl fmt::Debug for StatusSet {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_set().entries((100..=599).filter(|status| self.contains(*status))).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_those_of_the_design() {
        let sets = OutcomeSets::default();
        for status in [200, 201, 204, 302, 304, 400, 402, 404, 409, 422] {
            assert_eq!(sets.classify(status, false), Outcome::Final, "{status}");
        }
        for status in [401, 403, 421, 425, 429] {
            assert_eq!(sets.classify(status, false), Outcome::NothingHappened, "{status}");
        }
        assert_eq!(sets.classify(503, true), Outcome::NothingHappened);
        for status in [408, 500, 501, 502, 503, 504, 599, 600, 999] {
            assert_eq!(sets.classify(status, false), Outcome::Unknown, "{status}");
            let alike = sets.classify(status, true) == Outcome::Unknown;
            assert_eq!(alike, status != 503, "{status}");
        }
    }

    #[test]
    fn a_status_in_both_sets_is_refused() {
        let both = OutcomeSets::new(StatusSet::of(&[200, 402]), StatusSet::of(&[402]), StatusSet::default());
        assert_eq!(both, Err(OutcomeSetsError::Both(402)));
        let both = OutcomeSets::new(StatusSet::of(&[503]), StatusSet::default(), StatusSet::of(&[503]));
        assert_eq!(both, Err(OutcomeSetsError::Both(503)));
        assert!(OutcomeSets::new(StatusSet::of(&[200]), StatusSet::of(&[402]), StatusSet::default()).is_ok());
        let OutcomeSets { finals, nothing, nothing_if_told_when } = OutcomeSets::default();
        assert!(OutcomeSets::new(finals, nothing, nothing_if_told_when).is_ok());
    }

    #[test]
    fn a_status_that_no_upstream_can_answer_is_in_no_set() {
        assert_eq!(StatusSet::of(&[99, 600, 999]), StatusSet::default());
        assert!(StatusSet::of(&[100, 599]).contains(599));
    }
}
