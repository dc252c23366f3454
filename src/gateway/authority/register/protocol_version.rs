//! The protocol version between regions: the one in use, the versions of each process, and raising
//! it.
//!
//! A process that does not speak the view's version runs nothing, answers no message to its
//! acceptor, and does nothing for an operator. It could misread messages. Only an operator raises
//! the version: until then every process can go back to the version before.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;

use super::propose;
use crate::gateway::authority::act_error::{ActError, refused};
use crate::gateway::instance::Gateway;
use crate::ports::peers::PeerError;
use crate::ports::{Peers, Ports};
use crate::protocol::change::Change;
use crate::protocol::region::RegionName;
use crate::protocol::versions::Versions;
use crate::protocol::view::View;

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

impl<P: Ports> Gateway<P> {
    /// Notes that a trusted source goes by this version. If it is not spoken here, that is
    /// remembered until the process ends: versions only grow.
    pub(in crate::gateway) fn goes_by(&self, version: u16) {
        if self.authority.change(|known, _| known.goes_by(version)) {
            let why = self.outgrown().unwrap_or_default();
            tracing::error!(why, "no key is run here any more");
        }
    }

    /// Reports the version in use, and the versions that every region and witness speaks. `not-yet`
    /// if the register is not founded or a process does not answer, `refused` if they have none in
    /// common.
    pub async fn protocol(self: &Arc<Self>) -> Result<ProtocolReport, ActError> {
        let view = self.founded()?;
        let (common, speaks) = self.common(&everybody(self, &view)).await?;
        let speaks = speaks.into_iter().map(|(name, speaks)| (name.to_string(), speaks.to_string()));
        let (epoch, protocol) = (view.epoch(), view.protocol());
        Ok(ProtocolReport { epoch, protocol, common, speaks: speaks.collect() })
    }

    /// Has the regions go by the newest version that all of them and all witnesses speak. There is
    /// no way back. Fails as [`Gateway::protocol`], and with `not-yet` if no majority agrees.
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

    /// The newest version that all of these speak, and the versions of each. If a region has
    /// several gateways, the one that answers speaks for all. A gateway that was left behind closes
    /// itself once the view goes by a version that it does not speak.
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

/// All regions and witnesses that must speak a version before the view goes by it.
fn everybody<P: Ports>(gateway: &Gateway<P>, view: &View) -> Vec<RegionName> {
    let regions = view.ring().regions().iter().map(|region| &region.name);
    let mut all: Vec<RegionName> =
        regions.chain(view.voters().keys()).chain(&gateway.settings.failover.witnesses).cloned().collect();
    all.sort();
    all.dedup();
    all
}
