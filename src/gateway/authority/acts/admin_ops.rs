//! Operators' acts on the register: founding, changes of the ring, drains, returns, takeovers.
//!
//! Every act returns its result, or the reason why nothing changed. None is done unasked.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;

use crate::gateway::authority::act_error::{ActError, not_yet, refused};
use crate::gateway::authority::moves::{self, Move};
use crate::gateway::authority::register::{learn, propose};
use crate::gateway::authority::takeover;
use crate::gateway::instance::Gateway;
use crate::ports::peers::{PeerReply, Question};
use crate::ports::{Peers, Ports, Upkeep};
use crate::protocol::region::RegionName;
use crate::protocol::register::{Accepted, Message, Reply};
use crate::protocol::ring::{ARCS, Ring};
use crate::protocol::view::{Content, Escrowed, Standing, View};

/// Time limit for an answer of one acceptor, or of one region.
const WITHIN: Duration = Duration::from_secs(3);

/// Result of a founding.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FoundReport {
    /// The first epoch.
    pub epoch: u64,
    /// Regions and witnesses that vote from now on.
    pub voters: Vec<String>,
}

/// Arcs that would change their owner.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Moved {
    /// The present owner.
    pub from: String,
    /// The owner under the new ring.
    pub to: String,
    /// Number of arcs, of 65,536.
    pub arcs: u32,
    /// The same as a share of the ring, 0 to 1.
    pub share: f64,
}

impl Moved {
    pub(super) fn new(from: String, to: String, arcs: u32) -> Self {
        Self { from, to, arcs, share: f64::from(arcs) / f64::from(ARCS) }
    }
}

/// Changes that a ring would make.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RingPlan {
    /// The epoch that the ring was compared with: `ring apply` expects it.
    pub epoch: u64,
    /// Arcs that would move.
    pub moves: Vec<Moved>,
    /// Tenants whose pins change.
    pub pins: Vec<String>,
    /// Regions that are new.
    pub regions_added: Vec<String>,
    /// Regions that would leave.
    pub regions_removed: Vec<String>,
    /// Routes that come under escrow.
    pub escrow_added: Vec<String>,
    /// Routes that leave escrow.
    pub escrow_removed: Vec<String>,
    /// Routes under escrow that mean other requests, recovery or escrow than agreed.
    pub escrow_changed: Vec<String>,
}

/// Result of a takeover by hand.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TakeoverReport {
    /// The epoch in which the region is lost.
    pub epoch: u64,
    /// Regions that accepted the risk and open without waiting.
    pub waived: Vec<String>,
}

/// Expected result of an act on the placement, computed without asking other regions.
pub(super) enum Wanted {
    /// Nothing to do: the view is like this already.
    Nothing(Arc<View>),
    /// A clean move that may begin, with its kind and text in the journal.
    Move { to: Move, kind: &'static str, what: String },
}

impl<P: Ports> Gateway<P> {
    /// Founds the register, with every region of the ring serving. Every voter must answer (else
    /// `not-yet`) and be empty (else `refused`). A second call completes one that was cut short.
    pub async fn found(
        self: &Arc<Self>,
        escrow: BTreeSet<Arc<str>>,
        epoch_above: Option<u64>,
    ) -> Result<FoundReport, ActError> {
        let Accepted { ballot, view: first } = self.may_found(escrow, epoch_above).await?;
        match self.accepted_by_all(&first, Message::Found { ballot, view: first.clone() }).await {
            Ok(()) => {}
            Err((name, Some(other))) => {
                return refused(format!("acceptor {name} refused the founding: {other:?}"));
            }
            Err((name, None)) => {
                return not_yet(format!("acceptor {name} did not confirm the founding: run this again"));
            }
        }
        self.install_view(&first);
        let voters = first.voters().keys().map(ToString::to_string).collect();
        Ok(FoundReport { epoch: first.epoch(), voters })
    }

    /// Has each voter of the view accept this message. An error names the first that does not.
    pub(super) async fn accepted_by_all(
        self: &Arc<Self>,
        view: &View,
        message: Message,
    ) -> Result<(), (RegionName, Option<Reply>)> {
        for (name, id) in view.voters() {
            match propose::ask(self, name, Some(*id), message.clone(), WITHIN).await {
                Some(Reply::Accepted) => {}
                other => return Err((name.clone(), other)),
            }
        }
        Ok(())
    }

    /// The founding that would be done. Asks each voter for its state, and changes nothing.
    pub(super) async fn may_found(
        self: &Arc<Self>,
        escrow: BTreeSet<Arc<str>>,
        epoch_above: Option<u64>,
    ) -> Result<Accepted, ActError> {
        let view = self.view();
        if view.epoch() > 0 {
            return refused(format!("the register is founded: epoch {}", view.epoch()));
        }
        let regions = view.ring().regions().iter().map(|region| &region.name);
        let names: Vec<RegionName> = regions.chain(&self.settings.failover.witnesses).cloned().collect();
        let (mut voters, mut begun) = (BTreeMap::new(), None);
        for name in &names {
            match propose::ask(self, name, None, Message::Read, WITHIN).await {
                Some(Reply::NotFounded(id)) => {
                    voters.insert(name.clone(), id);
                }
                Some(Reply::Holds { id, accepted, .. }) => {
                    voters.insert(name.clone(), id);
                    begun = Some(accepted);
                }
                Some(other) => return refused(format!("acceptor {name} answered {other:?}")),
                None => {
                    return not_yet(format!(
                        "acceptor {name} does not answer: every voter must, so start its gateway or witness first"
                    ));
                }
            }
        }
        let (protocol, longest_life) = match &begun {
            Some(accepted) => (accepted.view.protocol(), accepted.view.longest_life),
            None => (self.common(&names).await?.0, self.life_wanted(&self.live().routes)),
        };
        let escrow = self.meant(escrow)?;
        let first = View::founding(epoch_above.unwrap_or(0) + 1, view.ring().clone(), escrow, voters);
        let longest_lease = self.settings.failover.lease;
        let first = View::from_content(Content { protocol, longest_lease, longest_life, ..first.content() });
        match begun {
            None => {
                let ballot = self.authority.proposals.ballot(1, self.settings.me.clone());
                Ok(Accepted { ballot, view: Arc::new(first) })
            }
            Some(accepted) if *accepted.view == first => Ok(accepted),
            Some(accepted) => refused(format!(
                "an acceptor already holds epoch {} of another founding, ring or set of voters: this deployment is founded, or has to be emptied first",
                accepted.view.epoch()
            )),
        }
    }

    /// Compares this ring with the register's.
    pub fn plan(&self, ring: &Ring, escrow: &BTreeSet<Arc<str>>) -> Result<RingPlan, ActError> {
        let view = self.view();
        let moves = view.ring().moves(ring).map_err(|error| ActError::refused(error.to_string()))?;
        let names = |ring: &Ring| -> BTreeSet<String> {
            ring.regions().iter().map(|region| region.name.to_string()).collect()
        };
        let (before, after) = (names(view.ring()), names(ring));
        let wanted = self.meant(escrow.clone())?;
        let routes = |map: &Escrowed, takes: &dyn Fn(&Arc<str>) -> bool| -> Vec<String> {
            map.keys().filter(|route| takes(route)).map(ToString::to_string).collect()
        };
        let is_new = |route: &Arc<str>| !view.escrow().contains_key(route);
        let is_other = |route: &Arc<str>| wanted.get(route) != view.escrow().get(route);
        let moved = |((from, to), arcs): (&(RegionName, RegionName), &u32)| {
            Moved::new(from.to_string(), to.to_string(), *arcs)
        };
        Ok(RingPlan {
            epoch: view.epoch(),
            moves: moves.arcs.iter().map(moved).collect(),
            pins: moves.pins.iter().map(ToString::to_string).collect(),
            regions_added: after.difference(&before).cloned().collect(),
            regions_removed: before.difference(&after).cloned().collect(),
            escrow_added: routes(&wanted, &is_new),
            escrow_removed: routes(view.escrow(), &|route| !wanted.contains_key(route)),
            escrow_changed: routes(&wanted, &|route| !is_new(route) && is_other(route)),
        })
    }

    /// Puts a ring in force, as a clean move; new regions come in sealed. Errors: `epoch` if it is
    /// another than expected. `refused` if a serving region would leave or too few would own keys.
    /// `not-yet` if a region is not ready or does not give its keys up, or no majority agrees.
    pub async fn apply(
        self: &Arc<Self>,
        ring: Arc<Ring>,
        escrow: BTreeSet<Arc<str>>,
        expect_epoch: u64,
        actor: &str,
    ) -> Result<u64, ActError> {
        self.moved(self.may_apply(ring, escrow, expect_epoch)?, actor, "").await
    }

    /// The meanings of these routes to this gateway. `refused` if it has no such route with keys.
    fn meant(&self, routes: BTreeSet<Arc<str>>) -> Result<Escrowed, ActError> {
        let meanings = self.live().meanings.clone();
        let meant = |route: Arc<str>| match meanings.get(&route) {
            Some(meaning) => Ok((route, *meaning)),
            None => refused(format!(
                "the gateway has no route {route:?} with keys: let it read its routes.toml again first"
            )),
        };
        routes.into_iter().map(meant).collect()
    }

    /// The move that puts a ring in force.
    pub(super) fn may_apply(
        &self,
        ring: Arc<Ring>,
        escrow: BTreeSet<Arc<str>>,
        expect_epoch: u64,
    ) -> Result<Wanted, ActError> {
        let base = self.founded()?;
        if base.epoch() != expect_epoch {
            let detail = format!("the register is at epoch {}, not {expect_epoch}: plan again", base.epoch());
            return Err(ActError { code: "epoch", detail });
        }
        moves::may_apply(self, &base, &ring)?;
        let what = format!("ring {} on epoch {expect_epoch}", ring.digest());
        let (escrow, standings) = (self.meant(escrow)?, BTreeMap::new());
        Ok(Wanted::Move { to: Move { base, ring, escrow, standings }, kind: "ring-applied", what })
    }

    /// Takes a region out of service, as a clean move, until [`Gateway::resume`]. `refused` if
    /// fewer than `min_serving` regions would be left; with `force`, if none.
    pub async fn drain(
        self: &Arc<Self>,
        region: &RegionName,
        force: bool,
        actor: &str,
        reason: &str,
    ) -> Result<u64, ActError> {
        self.moved(self.may_drain(region, force)?, actor, &format!(": {reason}")).await
    }

    pub(super) fn may_drain(&self, region: &RegionName, force: bool) -> Result<Wanted, ActError> {
        let base = self.founded()?;
        let drained = |base, what| {
            let to = Move::stands(base, region, Standing::Sealed { drained: true });
            Wanted::Move { to, kind: "drained", what }
        };
        match standing(&base, region)? {
            Standing::Serving => {}
            Standing::Sealed { drained: true } => return Ok(Wanted::Nothing(base)),
            // A sealed region owns nothing, and would return by itself. Drained, it stays out.
            Standing::Sealed { drained: false } => {
                return Ok(drained(base, format!("{region}, sealed before")));
            }
            Standing::Lost { .. } => {
                return refused(format!("region {region} is lost: there is nothing to drain"));
            }
        }
        // An edge serves and owns nothing: it cannot take keys over.
        let left = moves::owners(&base, base.ring(), Some(region));
        if left == 0 {
            return refused(format!("{region} is the last region that serves"));
        }
        let least = self.settings.failover.min_serving;
        if left < least && !force {
            return refused(format!(
                "{left} regions would be left serving, min_serving is {least}: force it, or resume another first"
            ));
        }
        Ok(drained(base, format!("{region} (force: {force})")))
    }

    /// Gives a drained region its arcs back. `refused` if it is lost: it returns by itself.
    pub async fn resume(self: &Arc<Self>, region: &RegionName, actor: &str) -> Result<u64, ActError> {
        self.moved(self.may_resume(region)?, actor, "").await
    }

    pub(super) fn may_resume(&self, region: &RegionName) -> Result<Wanted, ActError> {
        let base = self.founded()?;
        if base.members().contains_key(region) && base.ring().weight(region).is_none() {
            return refused(format!(
                "region {region} left the ring: put a ring in force that has it, then resume it"
            ));
        }
        match standing(&base, region)? {
            Standing::Serving => Ok(Wanted::Nothing(base)),
            Standing::Sealed { .. } => {
                let to = Move::stands(base, region, Standing::Serving);
                Ok(Wanted::Move { to, kind: "resumed", what: region.to_string() })
            }
            Standing::Lost { .. } => refused(format!(
                "region {region} is lost: it seals and returns by itself once its store and its links are well"
            )),
        }
    }

    /// Declares a region lost by hand, unless it is. With `accept_risk`, every serving region opens
    /// its arcs at once, for every loss that the view names: also for one before its store was
    /// replaced. `not-yet` if the region's lease runs, or no majority answers.
    pub async fn takeover(
        self: &Arc<Self>,
        region: &RegionName,
        accept_risk: bool,
        actor: &str,
        reason: &str,
    ) -> Result<TakeoverReport, ActError> {
        let base = self.founded()?;
        let view = match is_declared(&base, region, accept_risk)? {
            true => base,
            false => takeover::lose(self, &base, region, true).await.map_err(ActError::not_yet)?,
        };
        let losses: Vec<u64> = losses_of(&view, region).collect();
        let at = losses.iter().copied().max().unwrap_or(view.epoch());
        let how = if accept_risk { "takeover-at-risk" } else { "takeover" };
        self.journal_act(how, &format!("{actor}: {region}, lost in epoch {at}: {reason}")).await;
        let mut waived = Vec::new();
        if accept_risk {
            learn::adopt(self).await;
            for name in view.serving() {
                match self.waive(name, region, &losses, actor, reason).await {
                    Ok(()) => waived.push(name.to_string()),
                    Err(why) => tracing::warn!(%name, why, "a region did not accept the risk"),
                }
            }
        }
        Ok(TakeoverReport { epoch: at, waived })
    }

    /// Has a region accept the risk of these losses.
    async fn waive(
        self: &Arc<Self>,
        at_region: &RegionName,
        region: &RegionName,
        losses: &[u64],
        actor: &str,
        reason: &str,
    ) -> Result<(), String> {
        for at in losses.iter().copied() {
            if *at_region == self.settings.me {
                self.accept_risk(region, at, actor, reason).await?;
                continue;
            }
            let (region, actor, reason) = (region.clone(), actor.to_owned(), reason.to_owned());
            let question = Question::AcceptRisk { region, at, actor, reason };
            match self.ports.peers().ask(at_region, question, WITHIN).await {
                Ok(PeerReply::Done) => {}
                Ok(PeerReply::Refused(why)) => return Err(why),
                Ok(other) => return Err(format!("it answered {other:?}")),
                Err(error) => return Err(error.to_string()),
            }
        }
        Ok(())
    }

    /// Journals an operator's act; a failure is logged, as the act is done in either case.
    pub(in crate::gateway) async fn journal_act(&self, kind: &str, text: &str) {
        tracing::warn!(kind, text, "an operator acted");
        if let Err(error) = self.store().note(kind, text).await {
            tracing::error!(kind, text, %error, "an operator's act could not be journalled");
        }
    }

    async fn moved(self: &Arc<Self>, wanted: Wanted, actor: &str, reason: &str) -> Result<u64, ActError> {
        let (to, kind, what) = match wanted {
            Wanted::Nothing(base) => return Ok(base.epoch()),
            Wanted::Move { to, kind, what } => (to, kind, what),
        };
        self.journal_act(kind, &format!("{actor}: {what}{reason}")).await;
        moves::move_to(self, &to).await.map(|view| view.epoch()).map_err(ActError::not_yet)
    }

    /// The view of a founded register, if its protocol version is spoken here.
    pub(in crate::gateway) fn founded(&self) -> Result<Arc<View>, ActError> {
        let view = self.view();
        match self.snapshot().outgrown() {
            Some(why) => refused(why),
            None if view.epoch() == 0 => not_yet("the register is not founded: run `onceway init` first"),
            None => Ok(view),
        }
    }
}

/// The epochs in which stores of a region were lost that have not come back.
pub(super) fn losses_of<'a>(view: &'a View, region: &'a RegionName) -> impl Iterator<Item = u64> + 'a {
    view.losses().filter(move |(origin, _)| origin.region == *region).map(|(_, at)| at)
}

/// True if the region is lost already, or if only the risk of a lost store is left to accept.
pub(super) fn is_declared(view: &View, region: &RegionName, accept_risk: bool) -> Result<bool, ActError> {
    let lost = matches!(standing(view, region)?, Standing::Lost { .. });
    Ok(lost || accept_risk && losses_of(view, region).next().is_some())
}

fn standing(view: &View, region: &RegionName) -> Result<Standing, ActError> {
    view.standing(region).ok_or_else(|| ActError::unknown(view, region))
}
