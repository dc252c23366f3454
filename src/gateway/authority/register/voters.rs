//! Agreements of the regions beside their moves: voters, the longest life of keys, protocol
//! version.
//!
//! An acceptor that was made anew has another id, and is no voter before the voters change; a
//! silent one stays a voter (docs/protocol.md#rule-17). A life is agreed on before the first claim
//! that it is promised to (docs/protocol.md#rule-32): only agreed lives say when a replaced store
//! is no risk.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use serde::Serialize;

use super::{learn, propose};
use crate::gateway::authority::act_error::{ActError, refused};
use crate::gateway::instance::Gateway;
use crate::gateway::policy::route::Routes;
use crate::ports::peers::{PeerError, Question};
use crate::ports::{Acceptors, Peers, Ports};
use crate::protocol::change::Change;
use crate::protocol::lifetime::Retention;
use crate::protocol::plant::{Check, is_disabled};
use crate::protocol::region::RegionName;
use crate::protocol::register::{Message, Reply};
use crate::protocol::versions::Versions;
use crate::protocol::view::{AcceptorId, View};

const LOOK: Duration = Duration::from_secs(1);
const ASK_WITHIN: Duration = Duration::from_secs(1);
/// Time limit for agreeing on a voter, or on longer lives.
const WITHIN: Duration = Duration::from_secs(3);

pub async fn voters_loop<P: Ports>(gateway: Weak<Gateway<P>>) {
    while let Some(strong) = gateway.upgrade() {
        let now = strong.now();
        admit(&strong).await;
        strong.agree_on_lives(&strong.live().routes).await;
        let view = strong.view();
        tell_witnesses(&strong, &view).await;
        let first = view.serving().next() == Some(&strong.settings.me);
        if first && strong.holds_lease(now) {
            look(&strong, &view).await;
        }
        strong.rest(now + LOOK).await;
    }
}

/// Admits the own acceptor, once it has been a voter, and silent, for one longest lease.
async fn admit<P: Ports>(gateway: &Arc<Gateway<P>>) {
    let Ok((version, own)) = gateway.store().acceptor().await else { return };
    let now = gateway.now();
    let view = gateway.view();
    let due = gateway.authority.admission.lock().due(&own, &gateway.settings.me, &view, now);
    if let Some(admitted) = due {
        match gateway.store().set_acceptor(version, &admitted).await {
            Ok(written) => tracing::info!(?written, "the own acceptor is a voter from now on"),
            Err(error) => tracing::warn!(%error, "the own acceptor could not be admitted yet"),
        }
        propose::look(gateway).await;
    }
}

/// Reads each witness, which so knows that this region is there, and tells the view to a new one.
/// It believes a majority of the regions that it hears (docs/protocol.md#rule-16).
async fn tell_witnesses<P: Ports>(gateway: &Arc<Gateway<P>>, view: &Arc<View>) {
    for name in &gateway.settings.failover.witnesses {
        let reply = propose::ask(gateway, name, None, Message::Read, ASK_WITHIN).await;
        if matches!(reply, Some(Reply::NotFounded(id)) if view.voters().get(name) == Some(&id)) {
            let question = Question::Adopt { view: view.clone() };
            if let Err(error) = gateway.ports.peers().ask(name, question, ASK_WITHIN).await {
                tracing::debug!(%name, %error, "a new witness was not told that it votes");
            }
        }
    }
}

async fn look<P: Ports>(gateway: &Arc<Gateway<P>>, view: &Arc<View>) {
    let Some((name, id)) = due(gateway, view).await else { return };
    let mut voters = view.voters().clone();
    match id {
        Some(id) => voters.insert(name.clone(), id),
        None => voters.remove(&name),
    };
    let Ok(next) = view.next(&Change::Voters(voters)) else { return };
    tracing::warn!(%name, joins = id.is_some(), "changing a voter");
    if let Err(why) = propose::propose(gateway, view, Arc::new(next), WITHIN).await {
        tracing::info!(why, "the voters could not be changed yet");
    }
}

/// A voter to add or replace, with its id, or to remove.
async fn due<P: Ports>(gateway: &Arc<Gateway<P>>, view: &View) -> Option<(RegionName, Option<AcceptorId>)> {
    let in_ring = |name: &RegionName| view.ring().regions().iter().any(|region| region.name == *name);
    let witnesses = &gateway.settings.failover.witnesses;
    if let Some(gone) = view.voters().keys().find(|name| !in_ring(name) && !witnesses.contains(name)) {
        return Some((gone.clone(), None));
    }
    // A region votes once it is complete: before, its store may still be filled.
    let regions = view.ring().regions().iter().map(|region| &region.name);
    let regions = regions.filter(|name| view.serves(name) || view.voters().contains_key(*name));
    for name in regions.chain(witnesses) {
        let reply = propose::ask(gateway, name, None, Message::Read, ASK_WITHIN).await;
        let Some(Reply::Holds { id, .. } | Reply::NotFounded(id)) = reply else { continue };
        if view.voters().get(name) != Some(&id) {
            // An acceptor that does not speak the view's version could not vote: it would only
            // raise the majority that is needed.
            if gateway.said_by(name).await.is_ok_and(|speaks| speaks.has(view.protocol())) {
                return Some((name.clone(), Some(id)));
            }
            tracing::debug!(%name, "it would vote, but does not speak the protocol version of the view");
        }
    }
    None
}

impl<P: Ports> Gateway<P> {
    /// The longest life that keys of these routes are promised, or may be by `ring.toml`.
    pub(in crate::gateway) fn life_wanted(&self, routes: &Routes) -> Retention {
        let longest = routes.longest_life().max(self.settings.failover.max_life);
        longest.unwrap_or(Retention::For(Duration::ZERO)).and(self.settings.skew)
    }

    /// Has the regions agree on the lives that these routes promise, best before they are live:
    /// until then, claims of longer lives are refused.
    pub async fn agree_on_lives(self: &Arc<Self>, routes: &Routes) {
        let view = self.view();
        let Ok(next) = view.next(&Change::Life(self.life_wanted(routes))) else { return };
        if !self.holds_lease(self.now()) {
            return;
        }
        tracing::info!(life = ?next.longest_life, "keys are to be remembered for longer: the regions are asked");
        if let Err(why) = propose::propose(self, &view, Arc::new(next), WITHIN).await {
            tracing::warn!(why, "longer lives are not agreed on yet: such claims are refused until then");
        }
        // Claims go by the view that the gate follows.
        learn::adopt(self).await;
    }

    /// The life that the regions agreed on: keys of longer ago are forgotten.
    pub(in crate::gateway) fn agreed_life(&self) -> Retention {
        match is_disabled(Check::AgreedLife) {
            true => self.life_wanted(&self.live().routes),
            false => self.view().longest_life,
        }
    }

    /// Notes that a trusted source goes by this version: if it is not spoken here, for good.
    pub(in crate::gateway) fn goes_by(&self, version: u16) {
        if self.authority.change(|known, _| known.goes_by(version)) {
            let why = self.snapshot().outgrown().unwrap_or_default();
            tracing::error!(why, "no key is run here any more");
        }
    }

    /// Reports the version in use, and what every region and witness speaks. `not-yet` if the
    /// register is not founded or one does not answer, `refused` if they have none in common.
    pub async fn protocol(self: &Arc<Self>) -> Result<ProtocolReport, ActError> {
        let view = self.founded()?;
        let (common, speaks) = self.common(&everybody(self, &view)).await?;
        let speaks = speaks.into_iter().map(|(name, speaks)| (name.to_string(), speaks.to_string()));
        let (epoch, protocol) = (view.epoch(), view.protocol());
        Ok(ProtocolReport { epoch, protocol, common, speaks: speaks.collect() })
    }

    /// Has the regions go by the newest common version, for good. Fails as [`Gateway::protocol`],
    /// and with `not-yet` if no majority agrees.
    pub async fn raise_protocol(self: &Arc<Self>, actor: &str) -> Result<ProtocolReport, ActError> {
        let base = self.founded()?;
        let found = self.protocol().await?;
        if found.common <= base.protocol() {
            return Ok(found);
        }
        let change = Change::Protocol(found.common);
        let next = base.next(&change).map_err(|illegal| ActError::refused(illegal.to_string()))?;
        let text = format!("{actor}: from {} to {}", base.protocol(), found.common);
        self.journal_act("protocol-raised", &text).await;
        let view = propose::propose(self, &base, Arc::new(next), RAISE_WITHIN).await;
        let view = view.map_err(ActError::not_yet)?;
        Ok(ProtocolReport { epoch: view.epoch(), protocol: view.protocol(), ..found })
    }

    /// The newest version that all of these speak, and the versions of each. One gateway speaks for
    /// its region: one that was left behind closes itself once the view is newer.
    pub(in crate::gateway) async fn common(
        self: &Arc<Self>,
        names: &[RegionName],
    ) -> Result<(u16, BTreeMap<RegionName, Versions>), ActError> {
        let mut speaks = BTreeMap::new();
        for name in names {
            let said = self.said_by(name).await;
            let said = said.map_err(|why| {
                ActError::not_yet(format!("{name} does not say which versions it speaks: {why}"))
            })?;
            speaks.insert(name.clone(), said);
        }
        let newest = speaks.values().map(|versions| versions.newest()).min();
        match newest.filter(|version| speaks.values().all(|versions| versions.has(*version))) {
            Some(common) => Ok((common, speaks)),
            None => refused("no protocol version is spoken by all regions and witnesses"),
        }
    }

    /// The versions that a process speaks, as it says now.
    pub(super) async fn said_by(&self, name: &RegionName) -> Result<Versions, PeerError> {
        match *name == self.settings.me {
            true => Ok(self.settings.speaks),
            false => self.ports.peers().ping(name, SAY_WITHIN).await.map(|pong| pong.speaks),
        }
    }
}

/// Time limit for one process to name its versions.
const SAY_WITHIN: Duration = Duration::from_secs(3);
/// Time limit for agreeing on the raise.
const RAISE_WITHIN: Duration = Duration::from_secs(5);

/// The version in use, and the versions that each process speaks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ProtocolReport {
    /// The epoch of the newest known view.
    pub epoch: u64,
    /// The version of that view.
    pub protocol: u16,
    /// The newest version that all of them speak.
    pub common: u16,
    /// Versions that each region and witness speaks, as it says now.
    pub speaks: BTreeMap<String, String>,
}

/// All regions and witnesses that must speak a version before the view goes by it.
fn everybody<P: Ports>(gateway: &Gateway<P>, view: &View) -> Vec<RegionName> {
    let regions = view.ring().regions().iter().map(|region| &region.name);
    let mut all: Vec<RegionName> =
        regions.chain(view.voters().keys()).chain(&gateway.settings.failover.witnesses).cloned().collect();
    all.sort();
    all.dedup();
    all
}
