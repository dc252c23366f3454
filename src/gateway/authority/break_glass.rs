//! Breaking the glass: going on without a majority, on an operator's word that all others are stopped.
//!
//! Neighbours: [`super::acts`] has the acts that need no such word; `protocol::change` and `protocol::register` make and take the forced view.
//! Everything else in this room is safe whatever anybody says; this is as safe as the attestation. It is refused while a majority
//! answers, and is journalled before anything is done.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::acts::ActError;
use super::{Gateway, asking, learn, propose, takeover};
use crate::ports::{Ports, Upkeep};
use crate::protocol::change::Change;
use crate::protocol::region::RegionName;
use crate::protocol::register::{Ballot, Message, Reply, agreed};

/// How long one acceptor may take.
const WITHIN: Duration = Duration::from_secs(3);
/// So far above every ballot that is known: nobody who comes back is near it.
const ABOVE: u64 = 1 << 32;

impl<P: Ports> Gateway<P> {
    /// Goes on without the regions and witnesses that an operator attests to be stopped: they are lost and vote no more. Those who are left
    /// must all answer. Returns the epoch.
    ///
    /// # Errors
    /// A majority of the voters answers, so nothing has to be broken (`refused`); a survivor does not answer (`not-yet`).
    pub async fn break_glass(
        self: &Arc<Self>,
        stopped: &BTreeSet<RegionName>,
        actor: &str,
        attested: &str,
    ) -> Result<u64, ActError> {
        let base = self.founded()?;
        if stopped.contains(&self.settings.me) {
            return Err(ActError::refused("this region answers: it is not stopped"));
        }
        let known = |name: &RegionName| base.voters().contains_key(name) || base.standing(name).is_some();
        if let Some(stranger) = stopped.iter().find(|name| !known(name)) {
            let detail = format!("{stranger} is neither a region nor a voter");
            return Err(ActError { code: "unknown-region", detail });
        }
        let held = learn::read(self, &base).await;
        let answering: BTreeSet<RegionName> = held.keys().cloned().collect();
        let ids = held.iter().map(|(name, (id, _, _))| (name.clone(), *id)).collect();
        if agreed(base.voters(), &ids) {
            return Err(ActError::refused(format!(
                "{answering:?} answer and are a majority: nothing has to be broken; use `onceway takeover`"
            )));
        }
        if let Some(alive) = stopped.iter().find(|name| answering.contains(*name)) {
            return Err(ActError::refused(format!("{alive} answers: it is not stopped")));
        }
        let mut frontiers = BTreeMap::new();
        for region in stopped {
            frontiers.insert(region.clone(), takeover::frontier(self, &base, region).await);
        }
        let next = base
            .next(&Change::Force { stopped: frontiers })
            .map_err(|why| ActError::refused(why.to_string()))?;
        let silent: Vec<&RegionName> =
            next.voters().keys().filter(|name| !answering.contains(*name)).collect();
        if !silent.is_empty() {
            return Err(ActError::not_yet(format!(
                "{silent:?} do not answer and are not said to be stopped"
            )));
        }
        let text = format!("{actor} attests that {stopped:?} are stopped: {attested}");
        let noted = self.ports.store().note("glass-broken", &text).await;
        noted.map_err(|error| ActError::not_yet(format!("it could not be journalled: {error}")))?;
        tracing::error!(
            actor,
            attested,
            ?stopped,
            epoch = next.epoch(),
            "the glass is broken: going on without a majority"
        );
        let highest = held.values().map(|(_, accepted, _)| accepted.ballot.counter).max().unwrap_or(0);
        let ballot = Ballot {
            counter: highest + ABOVE,
            region: self.settings.me.clone(),
            proposer: self.authority.proposer,
        };
        let view = Arc::new(next);
        for (name, id) in view.voters() {
            let message = Message::Force { ballot: ballot.clone(), view: view.clone() };
            match asking::ask(self, name, Some(*id), message, WITHIN).await {
                Some(Reply::Accepted) => {}
                Some(other) => {
                    return Err(ActError::not_yet(format!(
                        "acceptor {name} answered {other:?}: run this again"
                    )));
                }
                None => {
                    return Err(ActError::not_yet(format!("acceptor {name} did not answer: run this again")));
                }
            }
        }
        learn::learned(self, &view);
        propose::tell(self, &view);
        Ok(view.epoch())
    }
}
