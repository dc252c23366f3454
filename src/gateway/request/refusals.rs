//! Refusals that several flows give, and the time after which their clients may ask again.
//!
//! Each is an `impl Gateway`, so that every flow reaches it. This file must not decide to refuse.

use std::time::Duration;

use super::problems::Problem;
use super::reply::Reply;
use crate::gateway::instance::Gateway;
use crate::ports::{Dice, Ports};
use crate::protocol::snapshot::Unfit;
use crate::protocol::time::Date;

const SECOND: Duration = Duration::from_secs(1);

impl<P: Ports> Gateway<P> {
    /// At least `span`, and up to as much again or three seconds more, so that refused clients do
    /// not come back together. Whole seconds, each equally likely, since `Retry-After` has no
    /// others (RFC 9110, section 10.2.3).
    pub(in crate::gateway) fn jittered(&self, span: Duration) -> Duration {
        const VALUES: u64 = 4;
        let least = span.as_secs() + u64::from(span.subsec_nanos() > 0);
        let below = Duration::from_secs(least.max(VALUES)) - Duration::from_nanos(1);
        Duration::from_secs(least + self.ports.dice().jitter(below).as_secs())
    }

    /// Pause before a client asks again for a key that moves: a move takes well below a second.
    pub(in crate::gateway) fn shortly(&self) -> Duration {
        const LEAST: Duration = Duration::from_millis(250);
        LEAST + self.ports.dice().jitter(LEAST * 2)
    }

    /// The refusal of a request that finds no room.
    pub(in crate::gateway) fn overloaded(&self) -> Problem {
        Problem::Overloaded { after: self.jittered(SECOND) }
    }

    /// The refusal of a key whose owner is changing.
    pub(in crate::gateway) fn moving(&self) -> Reply {
        Reply::Refused(Problem::Moving { after: self.shortly() }, None)
    }

    /// The reply to a request whose outcome is not known.
    pub(in crate::gateway) fn unknown(&self, expires: Option<Date>) -> Reply {
        let after = self.jittered(SECOND);
        Reply::Refused(Problem::OutcomeUnknown { upstream: None, after }, expires)
    }

    /// The refusal while the store does not answer, or is not reliable.
    pub(in crate::gateway) fn store_unavailable(&self, why: String) -> Problem {
        tracing::warn!(why, "refused: the store is not available");
        Problem::StoreUnavailable { after: self.jittered(SECOND) }
    }

    /// The refusal of a gateway that runs no key at all.
    pub(in crate::gateway) fn unfit(&self, why: &Unfit) -> Problem {
        tracing::warn!(why = why.reason(), "refused: no key is run here");
        let after = self.jittered(SECOND);
        match why {
            Unfit::NotFounded => Problem::NotFounded { after },
            Unfit::Outgrown(_) => Problem::Outgrown { after },
            Unfit::Store(_) => Problem::StoreUnavailable { after },
        }
    }
}
