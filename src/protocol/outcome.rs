//! The meaning of an upstream's status for the effect: the three outcome sets of a route
//! (docs/protocol.md#rule-13).
//!
//! A status that is in no set leaves the key in doubt.

use std::collections::BTreeSet;

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
    /// when a connection broke after the request was sent. A service that turns one away says when
    /// to come back.
    nothing_with_retry_after: StatusSet,
}

/// A status that is in both sets, so that they cannot be used together.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("status {0} is listed both as final and as nothing-happened: decide which")]
pub struct InBoth(u16);

impl OutcomeSets {
    /// The sets of a route, unless a status is final and also means that nothing happened.
    pub fn new(
        finals: StatusSet,
        nothing: StatusSet,
        nothing_with_retry_after: StatusSet,
    ) -> Result<Self, InBoth> {
        let both = |status: &u16| {
            let nothing = nothing.contains(*status) || nothing_with_retry_after.contains(*status);
            finals.contains(*status) && nothing
        };
        match (100..=599).find(both) {
            Some(status) => Err(InBoth(status)),
            None => Ok(Self { finals, nothing, nothing_with_retry_after }),
        }
    }

    /// Classifies one status; `with_retry_after` says whether `Retry-After` stood beside it.
    pub fn classify(&self, status: u16, with_retry_after: bool) -> Outcome {
        if self.nothing.contains(status)
            || (with_retry_after && self.nothing_with_retry_after.contains(status))
        {
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
        let finals = (200..=499).filter(|status| *status != 408 && !nothing.contains(*status));
        let finals = StatusSet::of(&finals.collect::<Vec<u16>>());
        Self { finals, nothing, nothing_with_retry_after: StatusSet::of(&[503]) }
    }
}

/// A set of statuses between 100 and 599.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StatusSet(BTreeSet<u16>);

impl StatusSet {
    /// The set of these statuses, but for those outside 100..=599, which no upstream can answer.
    pub fn of(statuses: &[u16]) -> Self {
        Self(statuses.iter().copied().filter(|status| (100..=599).contains(status)).collect())
    }

    /// True if `status` is in the set.
    pub fn contains(&self, status: u16) -> bool {
        self.0.contains(&status)
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
        let new = |finals: &[u16], nothing: &[u16], with_retry_after: &[u16]| {
            OutcomeSets::new(StatusSet::of(finals), StatusSet::of(nothing), StatusSet::of(with_retry_after))
        };
        assert_eq!(new(&[200, 402], &[402], &[]), Err(InBoth(402)));
        assert_eq!(new(&[503], &[], &[503]), Err(InBoth(503)));
        assert!(new(&[200], &[402], &[]).is_ok());
        assert!(new(&[99, 600, 999], &[99, 600], &[]).is_ok(), "no upstream answers with them");
        let OutcomeSets { finals, nothing, nothing_with_retry_after } = OutcomeSets::default();
        assert!(OutcomeSets::new(finals, nothing, nothing_with_retry_after).is_ok());
    }
}
