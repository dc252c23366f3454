//! The register: the view, agreed by a majority of acceptors (CASPaxos; docs/protocol.md#rule-14).
//!
//! An acceptor's answer is a pure function of its stored state and one message. A reply may leave
//! only once the new state is durable. An accept may carry a *lower* epoch than the accepted one if
//! its ballot is higher: that is Paxos.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::digest::Digest32;
use super::plant::{Check, is_disabled};
use super::region::RegionName;
use super::view::{AcceptorId, Release, View, Voters};
use super::written::{self, As, Form, Seconds};

/// The largest ballot and epoch: stores keep 63 bits, and there is room above a poisoned number.
pub const LARGEST: u64 = (1 << 63) - (1 << 40);

/// The number of a proposal. The proposer's part is drawn at process start: it need not be kept,
/// and a restored store cannot repeat it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ballot {
    /// Compared first.
    pub counter: u64,
    /// The proposing region.
    pub region: RegionName,
    /// 64 random bits of the proposing process.
    pub proposer: u64,
}

/// A value that an acceptor accepted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Accepted {
    /// The ballot under which it was accepted.
    pub ballot: Ballot,
    /// The value.
    pub view: Arc<View>,
}

/// A region's lease, as one acceptor granted it. A grant holds no time. It is over for a process
/// that saw it unchanged for long enough on its own boot clock ([`super::grants`]). So safety
/// depends on no wall clock (docs/protocol.md#rule-22).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Grant {
    /// Generation of the holder's store.
    pub generation: u32,
    /// The start of the holder's Postgres: two primaries of one region never hold together
    /// (docs/protocol.md#rule-24).
    pub boot: Digest32,
    /// The view under which it was granted, so that lost keys can be computed.
    pub view: Arc<View>,
    /// Grows with each renewal.
    pub number: u64,
    /// The time that it runs, as the holder said.
    pub ttl: Duration,
    /// The gateways of the region that may rely on it. A new start of the Postgres waits for those
    /// that have not come to it themselves.
    pub holders: BTreeMap<u64, Relies>,
}

/// A gateway's last renewal of a grant: the number of starts of its Postgres that the process had
/// asked for by then, and the number that was granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Relies(pub u32, pub u64);

/// A reason for no grant, one of the two below.
pub type Reason = &'static str;
/// A reason for no grant: the view that the holder has adopted does not let its region serve.
pub const DOES_NOT_SERVE: &str = "the view does not let the region serve";
/// A reason for no grant: two primaries of one region never hold together
/// (docs/protocol.md#rule-24).
pub const HELD_BY_ANOTHER_START: &str = "another start of that region's Postgres holds the lease";

/// A grant of an acceptor, as it is written.
type GrantEntry = (RegionName, Grant);

/// The whole durable state of an acceptor. Every message reads and writes it whole.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Acceptor {
    /// Drawn when it was made.
    pub id: AcceptorId,
    /// True if it may answer. It was there at the founding, or has been quiet for one longest grant
    /// since it became a voter (docs/protocol.md#rule-17).
    pub admitted: bool,
    /// The lowest ballot that it may still accept.
    pub promised: Option<Ballot>,
    /// The value that it accepted last.
    pub accepted: Option<Accepted>,
    /// The leases it granted.
    #[serde(with = "As::<Vec<GrantEntry>>")]
    pub grants: BTreeMap<RegionName, Grant>,
}

/// A question to an acceptor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs, reason = "the names say it")]
pub enum Message {
    /// Asks for the acceptor's state. Changes nothing; anybody may ask.
    Read,
    /// Promise to accept nothing below this ballot.
    Prepare { ballot: Ballot },
    /// Accept this view.
    Accept { ballot: Ballot, view: Arc<View> },
    /// Grant or renew a region's lease.
    Renew {
        region: RegionName,
        /// The start of its Postgres.
        boot: Digest32,
        /// The gateway that asks: 64 random bits. Grants of earlier starts are nothing to it.
        holder: u64,
        /// The number of starts that it has asked for: by it an old letter is known.
        starts: u32,
        /// The view that it has adopted.
        view: Arc<View>,
        #[serde(with = "Seconds")]
        ttl: Duration,
    },
    /// Take this view whatever was agreed on: no majority is left, and an operator attests that all
    /// members outside its voters are stopped, which the acceptor cannot check. The ballot is above
    /// all so far.
    Force { ballot: Ballot, view: Arc<View> },
    /// Take the first view of a deployment. Only an acceptor that holds nothing takes it.
    Found { ballot: Ballot, view: Arc<View> },
}

/// An acceptor's answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs, reason = "the names say it")]
pub enum Reply {
    /// The acceptor holds no value: the register was not founded, or not here.
    #[serde(with = "As::<written::Id<_>>")]
    NotFounded(AcceptorId),
    /// The acceptor is not the one that the sender means: it was made anew since.
    #[serde(with = "As::<written::Id<_>>")]
    OtherAcceptor(AcceptorId),
    /// The acceptor became a voter a moment ago, and may have forgotten earlier grants.
    NotAdmitted,
    /// The state of the acceptor.
    Holds {
        id: AcceptorId,
        promised: Option<Ballot>,
        accepted: Accepted,
        /// Regions whose grant is not over, as far as it knows.
        running: BTreeSet<RegionName>,
    },
    /// Promised; with the value that it accepted last.
    Promised(Accepted),
    /// A higher ballot was promised.
    Outbid(Ballot),
    /// Accepted, durably.
    Accepted,
    /// Not accepted: that region's lease still runs, and it has not given up what it would lose.
    #[serde(with = "As::<written::Region<_>>")]
    Blocked(RegionName),
    /// Granted under this number.
    #[serde(with = "As::<written::Number<_>>")]
    Granted(u64),
    /// Not granted: a view newer than the holder's was accepted here.
    Newer,
    /// Not granted: [`DOES_NOT_SERVE`] or [`HELD_BY_ANOTHER_START`].
    #[serde(with = "As::<written::Why<String>>")]
    NotGranted(Reason),
}

/// Says of a grant if it is surely over.
pub type Over<'a> = &'a dyn Fn(&RegionName, &Grant) -> bool;
/// State that must be durable before the reply leaves, if anything changes; and the reply.
pub type Answered = (Option<Acceptor>, Reply);

impl Form<Reason> for written::Why<String> {
    fn of(why: &Reason) -> Self {
        Self { why: (*why).to_owned() }
    }

    fn value(self) -> Result<Reason, &'static str> {
        let known = [DOES_NOT_SERVE, HELD_BY_ANOTHER_START].into_iter().find(|known| *known == self.why);
        known.ok_or("why a lease was not granted")
    }
}

impl Acceptor {
    /// An acceptor that was just made and holds nothing.
    pub fn made(id: AcceptorId) -> Self {
        Self { id, admitted: false, promised: None, accepted: None, grants: BTreeMap::new() }
    }

    /// The acceptor of a process that starts over this one. If it is not certain that the file has
    /// all promises, it is another one, `anew`, which holds nothing and is no voter yet
    /// (docs/protocol.md#rule-17). All forgotten promises are of a voter that never answers again.
    pub fn after_start(&self, remembers: bool, anew: AcceptorId) -> Self {
        match remembers || is_disabled(Check::PutBack) {
            true => self.clone(),
            false => Self::made(anew),
        }
    }

    /// The answer to a message meant for the acceptor `to`.
    pub fn answer(&self, to: Option<AcceptorId>, message: &Message, over: Over<'_>) -> Answered {
        if to.is_some_and(|to| to != self.id) {
            return (None, Reply::OtherAcceptor(self.id));
        }
        if let Message::Accept { ballot, view } = message
            && self.is_taken_in_by_one(view)
        {
            return self.accept(ballot, view, over);
        }
        if let Message::Force { ballot, view } = message
            && self.is_left_alone(view)
        {
            return self.forced(ballot, view);
        }
        let Some(accepted) = &self.accepted else { return self.found(message) };
        match message {
            Message::Read => (None, self.holds(accepted, over)),
            Message::Found { ballot, view } => {
                let same = accepted.ballot == founding(ballot) && accepted.view == *view;
                (None, if same { Reply::Accepted } else { self.holds(accepted, over) })
            }
            _unadmitted @ (Message::Prepare { .. }
            | Message::Accept { .. }
            | Message::Force { .. }
            | Message::Renew { .. })
                if !self.admitted && !is_disabled(Check::NewVoterSilent) =>
            {
                (None, Reply::NotAdmitted)
            }
            Message::Force { ballot, view } => self.forced(ballot, view),
            Message::Prepare { ballot } => match &self.promised {
                Some(promised) if ballot <= promised => (None, Reply::Outbid(promised.clone())),
                Some(_) | None => {
                    let next = Acceptor { promised: Some(ballot.clone()), ..self.clone() };
                    (Some(next), Reply::Promised(accepted.clone()))
                }
            },
            Message::Accept { ballot, view } => self.accept(ballot, view, over),
            Message::Renew { region, boot, holder, starts, view, ttl } => {
                let number = self.grants.get(region).map_or(0, |grant| grant.number) + 1;
                let grant = Grant {
                    generation: view.members().get(region).map_or(0, |member| member.generation),
                    boot: *boot,
                    view: view.clone(),
                    number,
                    ttl: *ttl,
                    holders: [(*holder, Relies(*starts, number))].into(),
                };
                self.renew(accepted, region, (*holder, *starts), grant, over)
            }
        }
    }

    /// True if the view takes this acceptor in beside a lone voter, as break-glass leaves one.
    ///
    /// Both must accept that view, so this acceptor may before it is admitted. It forgets nothing
    /// by that: the lone voter knows everything of before, and without it the two decide nothing.
    fn is_taken_in_by_one(&self, view: &View) -> bool {
        let (before, voters) = (&view.voters_before, view.voters());
        let is_kept = |(name, id): (&RegionName, &AcceptorId)| voters.get(name) == Some(id) && *id != self.id;
        !self.admitted
            && before.len() == 1
            && before.iter().all(is_kept)
            && voters.values().any(|id| *id == self.id)
    }

    /// True if a forced view makes this acceptor the only voter although it may not answer yet.
    ///
    /// Every voter is attested to be stopped, so no majority agrees on anything or renews a lease
    /// any more. It takes the view, but is not admitted by that: older leases may still run, so it
    /// is silent for the longest one first (docs/protocol.md#rule-17).
    fn is_left_alone(&self, view: &View) -> bool {
        !self.admitted && view.voters().len() == 1 && view.voters().values().all(|id| *id == self.id)
    }

    /// The answer before the founding: only the founding is heard.
    fn found(&self, message: &Message) -> Answered {
        let Message::Found { ballot, view } = message else { return (None, Reply::NotFounded(self.id)) };
        if self.promised.is_some() {
            return (None, Reply::NotFounded(self.id));
        }
        // No region holds a lease before the first view, so no grant can be forgotten.
        let next = Acceptor { admitted: true, ..self.holding(&founding(ballot), view) };
        (Some(next), Reply::Accepted)
    }

    /// The acceptor of the voter `me` once it may answer: [`super::grants::Admission`] says when.
    ///
    /// An acceptor that holds nothing takes the chosen view that made it a voter, under a ballot
    /// below every proposer's (they count from 1). So it adds nothing that could be chosen, and a
    /// round finds it behind all accepted views.
    pub(super) fn admit(&self, me: &RegionName, chosen: &Arc<View>) -> Self {
        let below_all = Ballot { counter: 0, region: me.clone(), proposer: self.id.0 as u64 };
        let accepted = self
            .accepted
            .clone()
            .unwrap_or_else(|| Accepted { ballot: below_all.clone(), view: chosen.clone() });
        let promised = self.promised.clone().or(Some(below_all));
        Self { admitted: true, promised, accepted: Some(accepted), ..self.clone() }
    }

    fn holds(&self, accepted: &Accepted, over: Over<'_>) -> Reply {
        let running = self.grants.iter().filter(|(region, grant)| !over(region, grant));
        Reply::Holds {
            id: self.id,
            promised: self.promised.clone(),
            accepted: accepted.clone(),
            running: running.map(|(region, _)| region.clone()).collect(),
        }
    }

    fn accept(&self, ballot: &Ballot, view: &Arc<View>, over: Over<'_>) -> Answered {
        if let Some(promised) = self.promised.as_ref().filter(|promised| ballot < promised) {
            return (None, Reply::Outbid(promised.clone()));
        }
        let blocks = |(region, grant): &(&RegionName, &Grant)| {
            !is_disabled(Check::GrantOnAccept)
                && grant.view.epoch() < view.epoch()
                && !over(region, grant)
                && !has_released(region, view)
                && grant.view.loses(view, region)
        };
        if let Some((region, _)) = self.grants.iter().find(blocks) {
            return (None, Reply::Blocked(region.clone()));
        }
        (Some(self.holding(ballot, view)), Reply::Accepted)
    }

    /// The acceptor that has accepted this view under this ballot.
    fn holding(&self, ballot: &Ballot, view: &Arc<View>) -> Acceptor {
        let accepted = Accepted { ballot: ballot.clone(), view: view.clone() };
        Acceptor { promised: Some(ballot.clone()), accepted: Some(accepted), ..self.clone() }
    }

    fn forced(&self, ballot: &Ballot, view: &Arc<View>) -> Answered {
        // A promise beyond all bounds is poison: no ballot could ever be above it.
        let sane = |promised: &&Ballot| promised.counter <= LARGEST;
        if let Some(promised) = self.promised.as_ref().filter(sane).filter(|promised| ballot < promised) {
            return (None, Reply::Outbid(promised.clone()));
        }
        let newest = self.accepted.as_ref().map_or(0, |accepted| accepted.view.epoch());
        if view.epoch() <= newest || view.voters().values().all(|id| *id != self.id) {
            let why = "it is not newer than what was agreed on, or names another voter";
            return (None, Reply::NotGranted(why));
        }
        (Some(self.holding(ballot, view)), Reply::Accepted)
    }

    fn renew(
        &self,
        accepted: &Accepted,
        region: &RegionName,
        (holder, starts): (u64, u32),
        grant: Grant,
        over: Over<'_>,
    ) -> Answered {
        // A grant below the accepted view would let an owner live on beside the next one
        // (docs/protocol.md#rule-24).
        let held = self.grants.get(region);
        let beyond =
            |held: &Grant| held.view.epoch() > grant.view.epoch() && !is_disabled(Check::LateRenewal);
        let newer = accepted.view.epoch() > grant.view.epoch() && !is_disabled(Check::NothingNewer);
        // A renewal that was long on its way must not put an older view in a grant's place: keys
        // gained since would be taken from a live holder unasked.
        if newer || held.is_some_and(beyond) {
            return (None, Reply::Newer);
        }
        if !grant.view.serves(region) {
            return (None, Reply::NotGranted(DOES_NOT_SERVE));
        }
        let mut next = self.clone();
        let is_other = |held: &&Grant| (held.generation, held.boot) != (grant.generation, grant.boot);
        // The gateways that may still rely on what they were granted, but for the one that asks: it
        // has left an earlier start, and renews its own.
        let rely = |held: &Grant| {
            let asks =
                |of: &u64, Relies(asked, _): &Relies| *of == holder && (!is_other(&held) || *asked < starts);
            let over = |number| over(region, &Grant { number, ..held.clone() });
            let others = held.holders.iter().filter(|(of, relies)| !asks(of, relies) && !over(relies.1));
            others.map(|(of, relies)| (*of, *relies)).collect::<BTreeMap<u64, Relies>>()
        };
        let others = held.map(rely).unwrap_or_default();
        if let Some(held) = held.filter(is_other)
            && !others.is_empty()
        {
            let has_come = held.holders != others;
            next.grants.insert(region.clone(), Grant { holders: others, ..held.clone() });
            return (has_come.then_some(next), Reply::NotGranted(HELD_BY_ANOTHER_START));
        }
        let number = grant.number;
        let same = held.filter(|held| !is_other(held));
        // Another gateway of the region may still rely on the longer time that it asked for.
        let longest = same.filter(|held| !over(region, held)).map_or(grant.ttl, |held| held.ttl);
        let holders = others.into_iter().chain(grant.holders).collect();
        next.grants.insert(region.clone(), Grant { ttl: grant.ttl.max(longest), holders, ..grant });
        (Some(next), Reply::Granted(number))
    }
}

/// The ballot of a founding. A founding prepares nothing, so any prepared ballot is higher.
fn founding(ballot: &Ballot) -> Ballot {
    Ballot { counter: 0, ..ballot.clone() }
}

/// True if the region gave up the keys that it loses by this very view.
pub fn has_released(region: &RegionName, view: &View) -> bool {
    let wanted = Release { base: view.epoch().saturating_sub(1), target: view.placement() };
    let fits = |given: Release| given == wanted || is_disabled(Check::ReleaseBound);
    view.members().get(region).and_then(|member| member.release).is_some_and(fits)
}

/// The size of a majority of `of`.
pub fn majority(of: usize) -> usize {
    of / 2 + 1
}

/// True if the given acceptors are a majority of these voters. An acceptor that was made anew under
/// the same name is another one.
pub fn agreed(voters: &Voters, by: &Voters) -> bool {
    voters.iter().filter(|(name, id)| by.get(*name) == Some(*id)).count() >= majority(voters.len())
}

/// The chosen view: majorities of its voters and of those of the view before report it under one
/// ballot. The voters that the reader knows do not matter.
pub fn chosen<'a>(
    reported: impl Iterator<Item = (&'a RegionName, AcceptorId, &'a Accepted)> + Clone,
) -> Option<&'a Accepted> {
    reported.clone().map(|(_, _, accepted)| accepted).find(|candidate| {
        let equal = reported.clone().filter(|(_, _, accepted)| accepted == candidate);
        let by = equal.map(|(name, id, _)| (name.clone(), id)).collect();
        let view = &candidate.view;
        agreed(view.voters(), &by) && (agreed(&view.voters_before, &by) || is_disabled(Check::VotersBefore))
    })
}

#[cfg(test)]
pub(super) mod tests;
