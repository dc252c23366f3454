//! A region's lease, as one of its gateways holds it (docs/protocol.md#rule-23).
//!
//! A lease is valid at a majority, counted from before the renewal was sent, less the drift. A
//! holder that could not renew asks for nothing until all grants of a minority have lapsed too.
//! Otherwise it would block its successor for ever.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::digest::Digest32;
use super::plant::{Check, is_disabled};
use super::region::RegionName;
use super::register::{Reply, agreed};
use super::time::{Drift, Moment};
use super::view::{View, Voters};

/// A number that grows whenever the lease lapsed or an adopted view took keys away: a handler that
/// slept through a takeover and a return finds another one (docs/protocol.md#rule-9).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Tenure(pub u64);

/// The time that a lease runs under `view`: as the configuration says, and no longer than was
/// agreed on. Whoever becomes a voter is silent for no longer than that.
pub fn ttl(configured: Duration, view: &View) -> Duration {
    if is_disabled(Check::AgreedLease) { configured } else { configured.min(view.longest_lease) }
}

/// A lease that was granted.
#[derive(Clone, Debug)]
pub struct Held {
    /// The view under which it was granted.
    pub view: Arc<View>,
    /// The end of its validity.
    pub until: Moment,
}

/// The holder's side of a lease.
#[derive(Clone, Debug, Default)]
pub struct Lease {
    ttl: Duration,
    drift: Drift,
    tenure: Tenure,
    held: Option<Held>,
    /// The start of the Postgres that the last renewal named.
    boot: Option<Digest32>,
    /// The number of starts that renewals have named.
    starts: u32,
    asking: Option<Asking>,
    /// The moment before which nothing is asked for.
    quiet_until: Option<Moment>,
    /// True if an acceptor holds a newer view that takes keys, and that is not known to be chosen.
    unfinished: bool,
    /// True if the region of the last renewal's view is its only one: its grants block nobody.
    alone: bool,
    /// True if a majority refused the last renewal that was decided.
    refused: bool,
    /// The moment since which renewals were sent without a majority that granted.
    in_vain_since: Option<Moment>,
    /// The moment of the last renewal: a reply names its renewal by nothing else.
    asked: Option<Moment>,
}

#[derive(Clone, Debug)]
struct Asking {
    view: Arc<View>,
    ttl: Duration,
    sent: Moment,
    granted: Voters,
    refused: Voters,
}

/// The result of a reply to a renewal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Renewal {
    /// Not decided yet.
    Open,
    /// A majority granted.
    Renewed,
    /// An acceptor accepted a newer view: learn it.
    Newer,
    /// A majority refused: no other reply decides anything.
    Refused,
}

/// The reason why a lease is not held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waits {
    /// For a majority that answers.
    Replies,
    /// Until nobody relies on what was granted before: to an earlier start of the Postgres, or to a
    /// gateway that is gone. That takes a lease at most.
    Earlier,
    /// For so long, until its last grants are over.
    Quiet(Duration),
}

impl Lease {
    /// A holder without a lease yet.
    pub fn new(ttl: Duration, drift: Drift) -> Self {
        Self { ttl, drift, tenure: Tenure(1), ..Self::default() }
    }

    /// The time that a lease runs under `view` ([`ttl`]).
    pub fn ttl(&self, view: &View) -> Duration {
        ttl(self.ttl, view)
    }

    /// The present tenure.
    pub fn tenure(&self) -> Tenure {
        self.tenure
    }

    /// The lease at `now`. Notices a lapse: then the tenure ends, and nothing is asked for until
    /// all grants have lapsed too.
    pub fn held(&mut self, now: Moment) -> Option<&Held> {
        if self.held.as_ref().is_some_and(|held| now >= held.until) {
            self.lapse(now);
        }
        self.held.as_ref()
    }

    /// The lease that was granted last and not given up, even if its time is over.
    pub fn current(&self) -> Option<&Held> {
        self.held.as_ref()
    }

    /// The reason why the lease is not held at `now`, if it is not.
    pub fn waits(&self, now: Moment) -> Waits {
        match self.quiet_until {
            Some(until) if now < until => Waits::Quiet(until.since(now)),
            _ if self.refused => Waits::Earlier,
            _ => Waits::Replies,
        }
    }

    /// Ends the lease now, by own decision.
    pub fn give_up(&mut self, now: Moment) {
        if self.held.is_some() {
            self.lapse(now);
        }
        self.asking = None;
    }

    /// Lays the lease down, because the view lets this region serve no more. All keys that it loses
    /// were given up or are over, so no region has to wait for its grants.
    pub fn lay_down(&mut self) {
        if self.held.take().is_some() {
            self.tenure.0 += 1;
        }
        self.asking = None;
        self.in_vain_since = None;
    }

    fn lapse(&mut self, now: Moment) {
        self.held = None;
        self.lost_keys();
        self.be_quiet(now);
    }

    /// Waits until all grants of a minority have run out: they block a successor as they run.
    fn be_quiet(&mut self, now: Moment) {
        let twice = self.drift.judge(self.drift.judge(self.ttl));
        self.quiet_until = (!self.alone && !is_disabled(Check::Quiet)).then(|| now + twice);
        self.in_vain_since = None;
        self.asking = None;
    }

    /// Ends the tenure, as when a view took keys: handlers with older claims may not send.
    pub fn lost_keys(&mut self) {
        if !is_disabled(Check::Tenure) {
            self.tenure.0 += 1;
        }
    }

    /// Says whether a renewal may be sent at `now`.
    pub fn may_ask(&mut self, now: Moment) -> bool {
        self.held(now);
        // A gateway that never held the lease leaves grants at a minority, too.
        if self.in_vain_since.is_some_and(|since| self.held.is_none() && now.since(since) >= self.ttl) {
            self.be_quiet(now);
        }
        self.quiet_until.is_none_or(|quiet| now >= quiet)
    }

    /// Records that a renewal under `view` goes to all its voters at `now`, and not before. With
    /// another start of the Postgres than before, nothing that was held under that one is relied on
    /// from now on: acceptors go by that (docs/protocol.md#rule-24).
    /// Returns the number of starts that were asked for.
    pub fn asks(&mut self, view: Arc<View>, boot: Digest32, now: Moment) -> u32 {
        if self.boot.replace(boot) != Some(boot) {
            self.starts += 1;
            if self.held.take().is_some() {
                self.lost_keys();
            }
        }
        self.quiet_until = None;
        self.alone = view.members().len() == 1;
        self.unfinished = false;
        self.in_vain_since = self.in_vain_since.or(Some(now));
        // If two were sent at one moment, a reply cannot be assigned to either.
        let twin = self.asked.replace(now) == Some(now);
        let ttl = self.ttl(&view);
        let (granted, refused) = (BTreeMap::new(), BTreeMap::new());
        self.asking = (!twin).then(|| Asking { view, ttl, sent: now, granted, refused });
        self.starts
    }

    /// Records a voter's answer to the renewal that was sent at `sent`.
    pub fn heard(&mut self, from: &RegionName, reply: &Reply, sent: Moment, now: Moment) -> Renewal {
        self.held(now);
        let Some(asking) = self.asking.as_mut().filter(|asking| asking.sent == sent) else {
            return Renewal::Open;
        };
        let voter = asking.view.voters().get(from).map(|id| (from.clone(), *id));
        match reply {
            Reply::Granted(_) => {
                asking.granted.extend(voter);
                if !agreed(asking.view.voters(), &asking.granted) {
                    return Renewal::Open;
                }
                let from = if is_disabled(Check::UntilFromBefore) { now } else { asking.sent };
                let until = from + self.drift.holder(asking.ttl);
                if until <= now {
                    return Renewal::Open;
                }
                self.in_vain_since = None;
                self.refused = false;
                if self.held.as_ref().is_none_or(|held| held.until < until) {
                    self.held = Some(Held { view: asking.view.clone(), until });
                }
                Renewal::Renewed
            }
            Reply::Newer => {
                // More renewals elsewhere would keep the newer view from ever being agreed on.
                self.asking = None;
                Renewal::Newer
            }
            Reply::NotGranted(_) => {
                asking.refused.extend(voter);
                if !agreed(asking.view.voters(), &asking.refused) {
                    return Renewal::Open;
                }
                // Whoever refuses holds no grant of this renewal: none blocks a successor.
                self.in_vain_since = None;
                self.asking = None;
                self.refused = true;
                Renewal::Refused
            }
            Reply::NotFounded(_) | Reply::OtherAcceptor(_) | Reply::NotAdmitted => Renewal::Open,
            Reply::Holds { .. } | Reply::Promised(_) | Reply::Outbid(_) => Renewal::Open,
            Reply::Accepted | Reply::Blocked(_) => Renewal::Open,
        }
    }

    /// Asks for nothing while a newer view that takes keys from this region is half agreed on: its
    /// grants would block that view again and again. The first time all of them have to run out.
    pub fn wait_for_newer(&mut self, now: Moment) {
        match self.unfinished {
            true => self.asking = None,
            false => self.be_quiet(now),
        }
        self.unfinished = true;
    }

    /// True if the acceptors must be read first: is the newer view still half agreed on?
    pub fn reads_first(&self) -> bool {
        self.unfinished && !is_disabled(Check::Quiet)
    }
}

/// The end of the right to send under a claim, from *before* the claim was asked for
/// (docs/protocol.md#rule-9).
///
/// After its hold, a claim reads as in doubt, and another request may then recover the key. The
/// holder must have sent, and be surely done, before that. A handler that slept must not send any
/// more. Lease and tenure are checked beside this, by the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SendBy(Moment);

impl SendBy {
    /// `asked + hold · (1 − eps) − δ − upstream_timeout`. The database starts the hold later than
    /// `asked`, so counting from `asked` errs on the safe side.
    pub fn new(asked: Moment, hold: Duration, upstream_timeout: Duration, drift: Drift) -> Self {
        Self(asked + drift.holder(hold).saturating_sub(upstream_timeout))
    }

    /// True if a send may start now.
    pub fn allows(self, now: Moment) -> bool {
        now < self.0
    }
}

#[cfg(test)]
pub(super) mod tests;
