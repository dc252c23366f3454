//! Which version of what regions say to each other is in use, who speaks it, and raising it.
//!
//! Neighbours: `protocol::versions` has the numbers, `protocol::change` makes the view that goes by the next one, [`super::propose`] has it agreed
//! on, [`super::super::heartbeat`] hears what peers speak. A process that does not speak the version of the view runs nothing, answers
//! nobody who asks its acceptor, and does nothing for an operator: what it would make of what it reads nobody can say. It must not raise anything by itself: until
//! an operator does, every process can be put back to the version before.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde::Serialize;

use super::acts::ActError;
use super::{Gateway, propose};
use crate::ports::{Peers, Ports};
use crate::protocol::change::Change;
use crate::protocol::region::RegionName;
use crate::protocol::versions::Versions;
use crate::protocol::view::View;

/// How long one process may take to say what it speaks.
const SAY_WITHIN: Duration = Duration::from_secs(3);
/// How long the raise may take to be agreed on.
const RAISE_WITHIN: Duration = Duration::from_secs(5);

/// Which version is in use, and who speaks which.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ProtocolReport {
    /// The epoch of the view that says so.
    pub epoch: u64,
    /// The version that it goes by.
    pub protocol: u16,
    /// The newest that everybody speaks.
    pub common: u16,
    /// What each region and witness speaks, as it says now.
    pub speaks: BTreeMap<String, String>,
}

impl<P: Ports> Gateway<P> {
    /// Why this process may do nothing, if the regions go by a version that it does not speak.
    pub(in crate::gateway) fn outgrown(&self) -> Option<String> {
        let beyond = self.authority.beyond.load(Ordering::SeqCst);
        let speaks = self.settings.speaks;
        (beyond > 0).then(|| {
            format!(
                "the regions go by protocol version {beyond} and this process speaks {speaks}: run a onceway here that speaks it"
            )
        })
    }

    /// Somebody who may say so goes by this version. Remembered if it is not spoken here, until the process ends: versions only grow.
    pub(in crate::gateway) fn goes_by(&self, version: u16) {
        if !self.settings.speaks.has(version)
            && self.authority.beyond.fetch_max(version, Ordering::SeqCst) == 0
        {
            let why = self.outgrown().unwrap_or_default();
            tracing::error!(why, "no key is run here any more");
        }
    }

    /// Which version is in use, and what every region and witness speaks.
    ///
    /// # Errors
    /// The register is not founded, somebody does not say (`not-yet`); they have no version in common (`refused`).
    pub async fn protocol(self: &Arc<Self>) -> Result<ProtocolReport, ActError> {
        let view = self.founded()?;
        let (common, speaks) = self.common(&everybody(self, &view)).await?;
        let speaks = speaks.into_iter().map(|(name, speaks)| (name.to_string(), speaks.to_string()));
        Ok(ProtocolReport {
            epoch: view.epoch(),
            protocol: view.protocol(),
            common,
            speaks: speaks.collect(),
        })
    }

    /// Has the regions go by the newest version that all of them and all witnesses speak. There is no way back.
    ///
    /// # Errors
    /// What [`Gateway::protocol`] says; nobody agrees (`not-yet`).
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

    /// The newest version that all of these speak, and what each of them does. Of several gateways of a region the one that is reached speaks
    /// for all: one that was left behind closes itself once the view goes by what it does not speak.
    pub(super) async fn common(
        self: &Arc<Self>,
        names: &[RegionName],
    ) -> Result<(u16, BTreeMap<RegionName, Versions>), ActError> {
        let mut speaks = BTreeMap::new();
        for name in names {
            let said = match *name == self.settings.me {
                true => self.settings.speaks,
                false => match self.ports.peers().ping(name, SAY_WITHIN).await {
                    Ok(pong) => pong.speaks,
                    Err(why) => {
                        let why = format!("{name} does not say which versions it speaks: {why}");
                        return Err(ActError::not_yet(why));
                    }
                },
            };
            speaks.insert(name.clone(), said);
        }
        let newest = speaks.values().map(|versions| versions.newest()).min();
        match newest.filter(|version| speaks.values().all(|versions| versions.has(*version))) {
            Some(common) => Ok((common, speaks)),
            None => Err(ActError::refused("no protocol version is spoken by all regions and witnesses")),
        }
    }
}

/// Whether somebody who is not let in yet says that it speaks the version of this view. Who does not could neither serve nor vote.
pub(super) async fn would_speak<P: Ports>(gateway: &Arc<Gateway<P>>, name: &RegionName, view: &View) -> bool {
    if *name == gateway.settings.me {
        return gateway.settings.speaks.has(view.protocol());
    }
    let said = gateway.ports.peers().ping(name, SAY_WITHIN).await;
    said.is_ok_and(|pong| pong.speaks.has(view.protocol()))
}

/// All who have to speak a version before the view goes by it.
fn everybody<P: Ports>(gateway: &Gateway<P>, view: &View) -> Vec<RegionName> {
    let regions = view.ring().regions().iter().map(|region| &region.name);
    let mut all: Vec<RegionName> =
        regions.chain(view.voters().keys()).chain(&gateway.settings.failover.witnesses).cloned().collect();
    all.sort();
    all.dedup();
    all
}
