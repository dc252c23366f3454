//! Replaces a region's store by an empty one: the view retires the old one
//! (docs/protocol.md#rule-36).
//!
//! A store that serves is not retired; nor is one whose last rows may still arrive, unless an
//! operator accepts their loss. Its rows live on in the other regions.

use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;

use crate::gateway::authority::act_error::{ActError, not_yet, refused};
use crate::gateway::authority::gate_loop;
use crate::gateway::authority::register::propose;
use crate::gateway::instance::{Gateway, Peer};
use crate::ports::Ports;
use crate::ports::peers::Pong;
use crate::protocol::change::Change;
use crate::protocol::region::{Origin, RegionName};
use crate::protocol::view::{Standing, View};

const WITHIN: Duration = Duration::from_secs(5);

/// Result of replacing a store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RebuildReport {
    /// The epoch that retired the old store.
    pub epoch: u64,
    /// The generation of the new store: its region file must name it.
    pub generation: u32,
    /// True if this was asked for before, and no region has heard of the new store yet.
    pub again: bool,
}

/// The retirement of a store that may be proposed.
pub struct Retiring {
    pub base: Arc<View>,
    origin: Origin,
    /// `None` if there is nothing to do: it was asked for before.
    pub next: Option<Arc<View>>,
}

pub fn generation(view: &View, region: &RegionName) -> u32 {
    view.members().get(region).map_or(0, |member| member.generation)
}

impl<P: Ports> Gateway<P> {
    /// Retires the store of a region that is drained, sealed or lost; it comes back with an empty
    /// one. `refused` if it serves, or is lost without `accept_risk`: rows that never left it would
    /// be gone. `not-yet` if no majority agrees, its gateways run, or a serving region lacks rows
    /// of it.
    pub async fn rebuild(
        self: &Arc<Self>,
        region: &RegionName,
        accept_risk: bool,
        actor: &str,
        reason: &str,
    ) -> Result<RebuildReport, ActError> {
        let Retiring { base, origin, next } = self.may_rebuild(region, accept_risk).await?;
        let generation = generation(next.as_ref().unwrap_or(&base), region);
        let Some(next) = next else {
            return Ok(RebuildReport { epoch: base.epoch(), generation, again: true });
        };
        let text = format!("{actor}: {origin} is replaced (risk accepted: {accept_risk}): {reason}");
        self.journal_act("store-replaced", &text).await;
        let agreed = propose::propose(self, &base, next, WITHIN).await.map_err(ActError::not_yet)?;
        Ok(RebuildReport { epoch: agreed.epoch(), generation, again: false })
    }

    pub(super) async fn may_rebuild(
        self: &Arc<Self>,
        region: &RegionName,
        accept_risk: bool,
    ) -> Result<Retiring, ActError> {
        let base = self.founded()?;
        let (Some(member), Some(origin)) = (base.members().get(region), base.origin(region)) else {
            return Err(ActError::unknown(&base, region));
        };
        if self.is_awaited(&base, &origin) {
            return Ok(Retiring { base, origin, next: None });
        }
        match member.standing {
            Standing::Serving => {
                return refused(format!(
                    "region {region} serves: drain it first, or stop it and wait until it is lost"
                ));
            }
            Standing::Sealed { .. } => self.is_everywhere(&base, &origin, member.mark).await?,
            Standing::Lost { .. } if accept_risk => {}
            Standing::Lost { .. } => {
                return refused(format!(
                    "region {region} is lost, and may have rows that no other region has. If its store can come back, start it: it returns by itself. If it cannot, accept the risk: keys whose rows never left it may run a second time"
                ));
            }
        }
        let next = base.next(&Change::Rebuild { region: region.clone() });
        let next = next.map_err(|illegal| ActError::refused(illegal.to_string()))?;
        Ok(Retiring { base, origin, next: Some(Arc::new(next)) })
    }

    /// True if this store replaced another and was never heard of, here, in a view or by a peer.
    /// One that was let serve has run keys, even if no row of it arrived anywhere.
    fn is_awaited(&self, view: &View, origin: &Origin) -> bool {
        let views = self.snapshot().views.clone();
        let let_serve =
            |view: &View| view.serves(&origin.region) && view.origin(&origin.region).as_ref() == Some(origin);
        let served = let_serve(view) || views.values().any(|known| let_serve(known));
        let retired = view.retired.keys().any(|old| old.region == origin.region);
        let fresh = view.members().get(&origin.region).is_some_and(|member| member.mark == 0);
        let health = self.health();
        let peer = health.peers.get(&origin.region);
        let follows = |peer: &&Peer| peer.origin.as_ref() == Some(origin);
        let heard = peer.filter(follows).is_some_and(|peer| peer.applied.max(peer.announced) > Some(0));
        let pongs = || health.peers.values().filter_map(|peer| peer.pong.as_ref());
        // A peer whose version does not report this may have heard of the store.
        let heard_of = |pong: &Pong| pong.heard.get(origin) > Some(&0);
        let frontier = pongs().any(|pong| pong.applied.get(origin) > Some(&0) || heard_of(pong));
        retired && fresh && !served && !heard && !frontier && *origin != self.origin
    }

    /// Checks that a sealed store may go: no gateway writes to it, and all serving regions have all
    /// of it on disk. Attempts may have been settled after the seal, and a Postgres that crashes
    /// forgets what it applied last.
    async fn is_everywhere(
        self: &Arc<Self>,
        view: &View,
        origin: &Origin,
        mark: u64,
    ) -> Result<(), ActError> {
        if !self.is_silent(&origin.region) {
            return not_yet(format!("a gateway of region {} still answers: stop them first", origin.region));
        }
        let last = {
            let health = self.health();
            let own = health.peers.get(&origin.region).and_then(|peer| peer.pong.as_ref());
            own.filter(|pong| pong.origin.as_ref() == Some(origin)).and_then(|pong| pong.beat)
        };
        let mark = last.map_or(mark, |beat| beat.seq.max(mark));
        for name in view.serving() {
            let frontier = gate_loop::frontier_at(self, name, origin, view.epoch()).await;
            let frontier = frontier.map_err(|why| {
                ActError::not_yet(format!("region {name} does not say what it has of {origin}: {why}"))
            })?;
            if frontier.applied < mark {
                return not_yet(format!(
                    "region {name} has {origin} up to heartbeat {}, its last is {mark}: wait until it has arrived",
                    frontier.applied
                ));
            }
        }
        Ok(())
    }
}
