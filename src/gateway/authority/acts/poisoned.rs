//! Leaving a poisoned register: a ballot or an epoch is so large that nothing can follow it.
//!
//! `protocol::bounds` keeps such numbers out, so only numbers from before the bounds, or written by
//! hand, need this file. An operator names the last genuine view. All its voters, except those said
//! to be stopped, accept it again in an epoch above every epoch that any acceptor holds. Must not
//! undo a view that acceptors agreed on after that one.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::break_glass;
use crate::gateway::authority::act_error::{ActError, not_yet, refused};
use crate::gateway::authority::register::learn;
use crate::gateway::instance::Gateway;
use crate::ports::{Authority as _, Ports};
use crate::protocol::bounds::{FORCED_BY, near_epoch};
use crate::protocol::change::STRIDE;
use crate::protocol::region::RegionName;
use crate::protocol::register::LARGEST;
use crate::protocol::speakers;
use crate::protocol::view::{Content, View};

pub struct WayOut {
    pub base: Arc<View>,
    pub view: Arc<View>,
    /// A counter above every genuine ballot.
    counter: u64,
}

impl<P: Ports> Gateway<P> {
    /// Goes on from the view of epoch `above`. An operator attests that the regions agreed on
    /// nothing above it. Regions said to be stopped are lost and no longer vote; all other voters
    /// must answer. Returns the new epoch.
    ///
    /// # Errors
    /// - `refused`: no such view is kept here, or an acceptor holds a view that follows it.
    /// - `refused`: no room is left above the poison.
    /// - `not-yet`: a voter does not answer.
    pub async fn leave_poison(
        self: &Arc<Self>,
        above: u64,
        stopped: &BTreeSet<RegionName>,
        actor: &str,
        attested: &str,
    ) -> Result<u64, ActError> {
        let WayOut { base: _, view, counter } = self.may_leave_poison(above, stopped).await?;
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

    /// The way out, if nothing speaks against it. Asks the voters for their state, and changes
    /// nothing.
    pub(in crate::gateway) async fn may_leave_poison(
        self: &Arc<Self>,
        above: u64,
        stopped: &BTreeSet<RegionName>,
    ) -> Result<WayOut, ActError> {
        let base = self.kept(above).await?;
        break_glass::named(&base, &self.settings.me, stopped)?;
        let held = learn::read(self, &base).await;
        if let Some(alive) = stopped.iter().find(|name| held.contains_key(*name)) {
            return refused(format!("{alive} answers: it is not stopped"));
        }
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
        Ok(WayOut { base, view, counter })
    }

    /// The view of that epoch, as it is kept here.
    async fn kept(&self, epoch: u64) -> Result<Arc<View>, ActError> {
        if let Some(view) = self.known_view(epoch) {
            return Ok(view);
        }
        let kept = self.ports.store().views().await;
        let kept = kept.map_err(|error| ActError::not_yet(format!("the store does not answer: {error}")))?;
        let epochs: Vec<u64> = kept.iter().map(|(view, _)| view.epoch()).collect();
        let found = kept.into_iter().map(|(view, _)| view).find(|view| view.epoch() == epoch);
        found.ok_or_else(|| {
            ActError::refused(format!("no view of epoch {epoch} is kept here, but of {epochs:?}"))
        })
    }
}
