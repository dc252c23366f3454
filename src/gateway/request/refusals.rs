//! Refusals that several flows give, and the time after which their clients may ask again.
//!
//! Each is an `impl Gateway`, so that every flow reaches it. This file must not decide to refuse.

use std::time::Duration;

use super::problems::{Kind, Problem};
use super::reply::Reply;
use crate::gateway::instance::Gateway;
use crate::ports::{Dice, Ports};
use crate::protocol::snapshot::Unfit;
use crate::protocol::time::Date;

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

    /// A problem that may be over in a second or some.
    pub(in crate::gateway) fn later(&self, kind: Kind) -> Problem {
        kind.after(self.jittered(Duration::from_secs(1)))
    }

    /// The refusal of a request that finds no room.
    pub(in crate::gateway) fn overloaded(&self) -> Problem {
        self.later(Kind::Overloaded)
    }

    /// The problem of a key whose owner is changing. A move takes well below a second.
    pub(in crate::gateway) fn moving(&self) -> Problem {
        const LEAST: Duration = Duration::from_millis(250);
        Kind::Moving.after(LEAST + self.ports.dice().jitter(LEAST * 2))
    }

    /// The reply to a request whose outcome is not known.
    pub(in crate::gateway) fn unknown(&self, expires: Option<Date>) -> Reply {
        Reply::Refused(self.later(Kind::OutcomeUnknown), expires)
    }

    /// The refusal while the store does not answer, or is not reliable.
    pub(in crate::gateway) fn store_unavailable(&self, why: String) -> Problem {
        tracing::warn!(why, "refused: the store is not available");
        self.later(Kind::StoreUnavailable)
    }

    /// The refusal of a gateway that runs no key at all.
    pub(in crate::gateway) fn unfit(&self, why: &Unfit) -> Problem {
        tracing::warn!(why = why.reason(), "refused: no key is run here");
        self.later(match why {
            Unfit::NotFounded => Kind::NotFounded,
            Unfit::Outgrown(_) => Kind::Outgrown,
            Unfit::Store(_) => Kind::StoreUnavailable,
        })
    }
}
