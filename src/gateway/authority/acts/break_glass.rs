//! Breaking the glass: going on without a majority, or leaving a register that a large number
//! poisoned.
//!
//! These acts are as safe as what an operator attests, and are journalled first. The first is
//! refused while a majority answers. For the second an operator names the last genuine view, and
//! voters that are not stopped accept it again, above every epoch that is held.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::gateway::authority::act_error::{ActError, not_yet, refused};
use crate::gateway::authority::register::learn::{self, Read};
use crate::gateway::authority::register::propose;
use crate::gateway::authority::takeover;
use crate::gateway::instance::Gateway;
use crate::gateway::upkeep::heartbeat;
use crate::ports::store::{Gate, StoreError};
use crate::ports::{Acceptors as _, Authority as _, Dice as _, KeyStore, Ports, Upkeep};
use crate::protocol::bounds::{FORCED_BY, near_epoch};
use crate::protocol::change::{Change, STRIDE};
use crate::protocol::region::RegionName;
use crate::protocol::register::{LARGEST, Message, agreed};
use crate::protocol::speakers;
use crate::protocol::view::{AcceptorId, Content, View};

fn unread(error: StoreError) -> ActError {
    ActError::not_yet(format!("the store does not answer: {error}"))
}

/// A way to go on, if nothing speaks against it.
pub struct WayOut {
    /// The view that an operator goes on from.
    pub base: Arc<View>,
    pub view: Arc<View>,
    /// A counter above every genuine ballot.
    counter: u64,
    /// The gate to approve first.
    unapproved: Option<Gate>,
    /// True if the own acceptor was made anew and votes alone.
    alone: bool,
}

impl<P: Ports> Gateway<P> {
    /// Goes on without the regions and witnesses that an operator attests to be stopped: they are
    /// lost and no longer vote. Survivors must answer (else `not-yet`). Returns the epoch.
    /// `refused` if a majority answers, or this region's own store went back or is new.
    pub async fn break_glass(
        self: &Arc<Self>,
        stopped: &BTreeSet<RegionName>,
        actor: &str,
        attested: &str,
    ) -> Result<u64, ActError> {
        let known = self.known().await?;
        // A gateway that was just started goes by its store's view from here on.
        self.install_view(&known);
        let WayOut { view, counter, unapproved, alone, .. } = self.may_break(known, stopped).await?;
        let alone = if alone { "; the own acceptor was made anew and votes alone" } else { "" };
        self.attested(&format!("{actor} attests that {stopped:?} are stopped{alone}: {attested}")).await?;
        if let Some(gate) = unapproved {
            self.store().approve(gate.version, &gate.running).await.map_err(unread)?;
            tracing::warn!("the store's boot is approved by the attestation alone");
        }
        let epoch = view.epoch();
        tracing::error!(actor, attested, ?stopped, epoch, "the glass is broken: going on without a majority");
        self.force(&view, counter).await
    }

    /// Goes on from the view of epoch `above`, as an operator attests that nothing above it was
    /// agreed on. Stopped regions are lost; other voters must answer (else `not-yet`). `refused` if
    /// no such view is kept, an acceptor holds one that follows it, or no epoch is left above all.
    pub async fn leave_poison(
        self: &Arc<Self>,
        above: u64,
        stopped: &BTreeSet<RegionName>,
        actor: &str,
        attested: &str,
    ) -> Result<u64, ActError> {
        let WayOut { view, counter, .. } = self.may_leave_poison(above, stopped).await?;
        let text = format!(
            "{actor} attests that nothing above epoch {above} was agreed on, and that {stopped:?} are stopped: {attested}"
        );
        self.attested(&text).await?;
        let epoch = view.epoch();
        tracing::error!(
            actor,
            attested,
            above,
            ?stopped,
            epoch,
            "the glass is broken: leaving a poisoned register"
        );
        self.force(&view, counter).await
    }

    /// The way out, if nothing speaks against it. Changes nothing.
    pub(super) async fn may_leave_poison(
        self: &Arc<Self>,
        above: u64,
        stopped: &BTreeSet<RegionName>,
    ) -> Result<WayOut, ActError> {
        let base = self.kept(above).await?;
        let held = self.held_without(stopped, &base).await?;
        let is_silent = |name: &&RegionName| !stopped.contains(*name) && !held.contains_key(*name);
        let silent: Vec<&RegionName> = base.voters().keys().filter(is_silent).collect();
        if !silent.is_empty() {
            return not_yet(format!("{silent:?} do not answer, and are not said to be stopped"));
        }
        let follows = |epoch: &u64| *epoch > base.epoch() && near_epoch(*epoch, base.epoch()).is_ok();
        let epochs = || held.values().map(|held| held.accepted.view.epoch());
        if let Some(next) = epochs().find(follows) {
            return refused(format!(
                "an acceptor holds the view of epoch {next}, which follows {above}: name the last epoch that is genuine"
            ));
        }
        // A region that left could leave no epoch to go on with.
        let announced = {
            let health = self.health();
            let peers = health.peers.iter().filter(|(name, _)| speakers::tells_of_others(name, &base));
            peers.filter_map(|(_, peer)| Some(peer.pong.as_ref()?.epoch)).max()
        };
        let highest =
            epochs().chain([self.view().epoch(), base.epoch()]).chain(announced).max().unwrap_or(above);
        if highest > LARGEST - 3 * STRIDE {
            return refused(format!(
                "no epoch is left above {highest}: found the deployment anew, with empty stores"
            ));
        }
        let high = View::from_content(Content { epoch: highest, ..base.content() });
        let view = self.forced(&base, &high, stopped, None).await?;
        let promised = held.values().filter_map(|held| Some(held.promised.as_ref()?.counter));
        let counters = promised.chain(held.values().map(|held| held.accepted.ballot.counter));
        let counter =
            counters.filter(|counter| *counter <= LARGEST - FORCED_BY).max().unwrap_or(0) + FORCED_BY;
        Ok(WayOut { base, view, counter, unapproved: None, alone: false })
    }

    async fn kept(&self, epoch: u64) -> Result<Arc<View>, ActError> {
        if let Some(view) = self.known_view(epoch) {
            return Ok(view);
        }
        let kept = self.store().views().await.map_err(unread)?;
        let epochs: Vec<u64> = kept.iter().map(|(view, _)| view.epoch()).collect();
        let found = kept.into_iter().map(|(view, _)| view).find(|view| view.epoch() == epoch);
        found.ok_or_else(|| {
            ActError::refused(format!("no view of epoch {epoch} is kept here, but of {epochs:?}"))
        })
    }

    pub(super) async fn attested(&self, text: &str) -> Result<(), ActError> {
        let noted = self.store().note("glass-broken", text).await;
        noted.map_err(|error| ActError::not_yet(format!("it could not be journalled: {error}")))
    }

    /// The view that goes on without the stopped, if nothing speaks against it. Changes nothing.
    pub(super) async fn may_break(
        self: &Arc<Self>,
        known: Arc<View>,
        stopped: &BTreeSet<RegionName>,
    ) -> Result<WayOut, ActError> {
        let held = self.held_without(stopped, &known).await?;
        // A survivor's last accepted view may have been agreed on with the stopped regions. It
        // comes first, as in any round.
        let newest = held.values().map(|held| &held.accepted).max_by(|a, b| a.ballot.cmp(&b.ballot));
        let newest = newest.map(|accepted| accepted.view.clone()).filter(|view| view.epoch() > known.epoch());
        let base = newest.unwrap_or_else(|| known.clone());
        let answering = learn::ids(held.iter().filter(|(name, _)| !self.waits_for_approval(name)));
        if agreed(base.voters(), &answering) {
            let names: Vec<&RegionName> = answering.keys().collect();
            return refused(format!(
                "{names:?} answer and are a majority: nothing has to be broken; use `onceway takeover`"
            ));
        }
        let anew = self.made_anew(&base, stopped).await?;
        let view = self.forced(&base, &base, stopped, anew.clone()).await?;
        let is_silent = |name: &RegionName| {
            !answering.contains_key(name) && anew.as_ref().is_none_or(|(alone, _)| alone != name)
        };
        let silent: Vec<&RegionName> = view.voters().keys().filter(|name| is_silent(name)).collect();
        if !silent.is_empty() {
            return not_yet(format!(
                "{silent:?} do not answer, or cannot vote before their stores are approved, and are not said to be stopped"
            ));
        }
        let unapproved = self.approved_by_nobody(&base, stopped).await?;
        let highest = held.values().map(|held| held.accepted.ballot.counter).max().unwrap_or(0);
        let counter = highest.saturating_add(FORCED_BY);
        Ok(WayOut { base: known, view, counter, unapproved, alone: anew.is_some() })
    }

    /// The state of the voters that answer. Checks that all regions said to be stopped are known,
    /// that this region is not among them, and that none of them answers.
    async fn held_without(
        self: &Arc<Self>,
        stopped: &BTreeSet<RegionName>,
        base: &View,
    ) -> Result<Read, ActError> {
        if stopped.contains(&self.settings.me) {
            return refused("this region answers: it is not stopped");
        }
        let known = |name: &RegionName| base.voters().contains_key(name) || base.standing(name).is_some();
        if let Some(stranger) = stopped.iter().find(|name| !known(name)) {
            let detail = format!("{stranger} is neither a region nor a voter");
            return Err(ActError { code: "unknown-region", detail });
        }
        let held = learn::read(self, base).await;
        match stopped.iter().find(|name| held.contains_key(*name)) {
            Some(alive) => refused(format!("{alive} answers: it is not stopped")),
            None => Ok(held),
        }
    }

    /// True if a peer says that its store is closed: it accepts nothing until another region
    /// approves that store, perhaps a stopped one.
    fn waits_for_approval(&self, name: &RegionName) -> bool {
        let health = self.health();
        let pong = health.peers.get(name).and_then(|peer| peer.pong.as_ref());
        // A witness has no store to approve, and reports no heartbeat.
        pong.is_some_and(|pong| !pong.serving && pong.origin.is_some())
    }

    /// The newest view that is known to be chosen. If all peers are stopped, none vouches for this
    /// store. Its view was chosen all the same, and its voters are asked for newer ones.
    pub(super) async fn known(self: &Arc<Self>) -> Result<Arc<View>, ActError> {
        if let Some(why) = self.snapshot().outgrown() {
            return refused(why);
        }
        if self.view().epoch() > 0 {
            return Ok(self.view());
        }
        let store = self.store();
        let gate = store.gate().await.map_err(unread)?;
        let kept = store.views().await.map_err(unread)?;
        let adopted = gate.state.map(|state| state.view);
        let newest = kept.into_iter().map(|(view, _)| view).chain(adopted).max_by_key(|view| view.epoch());
        newest.map_or_else(|| self.founded(), Ok)
    }

    /// The view after `base` without the stopped regions. `shown` says what is known of their rows.
    pub(super) async fn forced(
        self: &Arc<Self>,
        shown: &View,
        base: &View,
        stopped: &BTreeSet<RegionName>,
        anew: Option<(RegionName, AcceptorId)>,
    ) -> Result<Arc<View>, ActError> {
        let mut frontiers = BTreeMap::new();
        for region in stopped {
            frontiers.insert(region.clone(), takeover::frontier(self, shown, region, stopped).await);
        }
        let drawn = (self.ports.dice().nonce().0 >> 64) as u64;
        let next = base.next(&Change::Force { stopped: frontiers, anew, drawn });
        next.map(Arc::new).map_err(|why| ActError::refused(why.to_string()))
    }

    /// The own acceptor, if it was made anew with the region's new store and all voters are
    /// stopped. Then no survivor remembers a promise. The marks of its region's view say which rows
    /// are missing.
    async fn made_anew(
        self: &Arc<Self>,
        base: &View,
        stopped: &BTreeSet<RegionName>,
    ) -> Result<Option<(RegionName, AcceptorId)>, ActError> {
        let me = &self.settings.me;
        let all_stopped = base.voters().keys().all(|voter| voter == me || stopped.contains(voter));
        let gate = self.store().gate().await.map_err(unread)?;
        if !all_stopped || !base.is_present(&self.origin) || gate.state.is_none() {
            return Ok(None);
        }
        let (_, own) = self.store().acceptor().await.map_err(unread)?;
        let votes = base.voters().get(me) == Some(&own.id);
        Ok((!votes).then(|| (me.clone(), own.id)))
    }

    /// The gate to approve, if all peers that could are stopped. This process's own knowledge still
    /// counts: a store that went back has forgotten claims, and no attestation changes that.
    async fn approved_by_nobody(
        self: &Arc<Self>,
        base: &View,
        stopped: &BTreeSet<RegionName>,
    ) -> Result<Option<Gate>, ActError> {
        let others = base.members().keys().filter(|name| **name != self.settings.me).cloned().collect();
        if speakers::vouchers(&others, base).iter().any(|name| !stopped.contains(name)) {
            return Ok(None);
        }
        let (gate, own) = heartbeat::own_state(self).await.map_err(unread)?;
        if gate.is_open() {
            return Ok(None);
        }
        let heard = self.highest_heard();
        if heard > own {
            return refused(format!(
                "this region's own store went back: its heartbeat {heard} was seen, it holds {own}; it has forgotten claims, and would run them again"
            ));
        }
        if !heartbeat::only_restarted(&gate) {
            return refused(
                "this region's own store is new, restored or promoted, and nobody is left who could say what it lacks: start a gateway of a region whose store is whole, and run this there",
            );
        }
        Ok(Some(gate))
    }

    pub(super) async fn force(self: &Arc<Self>, view: &Arc<View>, counter: u64) -> Result<u64, ActError> {
        let ballot = self.authority.proposals.ballot(counter, self.settings.me.clone());
        let forced = self.accepted_by_all(view, Message::Force { ballot, view: view.clone() }).await;
        if let Err((name, reply)) = forced {
            let did =
                reply.map_or_else(|| "did not answer".to_owned(), |other| format!("answered {other:?}"));
            return not_yet(format!("acceptor {name} {did}: run this again"));
        }
        self.install_view(view);
        propose::tell(self, view);
        Ok(view.epoch())
    }
}
