//! What a fault or an operator takes hold of, so that no two of them break or mend the same thing at the same time.
//!
//! Neighbours: [`super::faults`] takes what it breaks, [`super::operator`] what it stops. Who attests that something is stopped keeps everybody
//! from starting it meanwhile. It must not break anything itself.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use onceway::protocol::region::RegionName;

use crate::letters::Letter;
use crate::scenario::fault::{Happens, How, OfLink, OfRegion};

/// What is taken hold of.
#[derive(Debug, Default)]
pub struct Organs {
    /// By whom: the number of those who share it, or [`ALONE`].
    held: Mutex<BTreeMap<String, usize>>,
    beginning: tokio::sync::Mutex<()>,
}

/// What somebody took hold of, until it is dropped.
pub struct Taken<'a> {
    organs: &'a Organs,
    parts: Vec<Organ>,
}

/// Something to take hold of.
#[derive(Clone, Debug)]
pub struct Organ {
    name: String,
    /// Whether others may have it, too: a link is as dead when both its ends are gone as when one is.
    shared: bool,
}

/// Who has it does not share it.
const ALONE: usize = usize::MAX;

impl Organs {
    /// Takes hold of all of these; of none if somebody has one of them.
    pub fn take(&self, parts: Vec<Organ>) -> Option<Taken<'_>> {
        let mut held = self.held();
        let is_free = |part: &Organ| held.get(&part.name).is_none_or(|by| part.shared && *by != ALONE);
        if !parts.iter().all(is_free) {
            return None;
        }
        for part in &parts {
            let by = held.entry(part.name.clone()).or_default();
            *by = if part.shared { *by + 1 } else { ALONE };
        }
        Some(Taken { organs: self, parts })
    }

    /// Waits until nobody attests that something is stopped; nobody does while what is returned lives.
    pub async fn may_begin(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.beginning.lock().await
    }

    fn held(&self) -> MutexGuard<'_, BTreeMap<String, usize>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        let mut held = self.organs.held();
        for part in &self.parts {
            match held.get_mut(&part.name) {
                Some(by) if part.shared && *by > 1 => *by -= 1,
                Some(_) | None => {
                    held.remove(&part.name);
                }
            }
        }
    }
}

/// The gateway process of a region, and the clock that goes with it.
pub fn process(region: &RegionName) -> Vec<Organ> {
    vec![named("process", region), named("clock", region)]
}

fn named(organ: &str, region: &RegionName) -> Organ {
    alone(format!("{organ} {region}"))
}

fn alone(name: String) -> Organ {
    Organ { name, shared: false }
}

/// What a fault takes hold of, by name.
pub fn of(what: &Happens, how: &How, regions: &[RegionName]) -> Vec<Organ> {
    let link = |one: &RegionName, other: &RegionName| format!("link {} {}", one.min(other), one.max(other));
    let links = |region: &RegionName| {
        let others = regions.iter().filter(|other| *other != region);
        others.map(|other| Organ { name: link(region, other), shared: true }).collect::<Vec<_>>()
    };
    match what {
        Happens::Region(kind, region) => match kind {
            OfRegion::RegionLoss | OfRegion::DiskLost | OfRegion::StoreRestored => {
                let mut all = links(region);
                all.extend(process(region));
                all.push(named("store", region));
                all
            }
            OfRegion::RoutesRenamed => vec![named("routes", region)],
            OfRegion::GatewayKilled
            | OfRegion::GatewayDiesAfter
            | OfRegion::RetentionLowered
            | OfRegion::GatewayPaused
            | OfRegion::GatewayUpgraded
            | OfRegion::ClockFast
            | OfRegion::ClockSlow => process(region),
            OfRegion::StoreDown
            | OfRegion::StoreStalls
            | OfRegion::StoreLosesReplies
            | OfRegion::StoreSlow
            | OfRegion::StoreRestarts
            | OfRegion::StoreClockAhead
            | OfRegion::StoreClockBack
            | OfRegion::StoreClockFarAhead
            | OfRegion::StoreClockFarBack => vec![named("store", region)],
            OfRegion::Isolated => links(region),
            OfRegion::ConfirmationsLate => vec![named("confirmations", region)],
            OfRegion::BigTransaction => vec![named("rows", region)],
            OfRegion::UpstreamRefuses
            | OfRegion::UpstreamSlow
            | OfRegion::UpstreamEffectThenDrop
            | OfRegion::UpstreamDropsBefore
            | OfRegion::UpstreamEffectThenFail
            | OfRegion::UpstreamFailThenEffect
            | OfRegion::UpstreamBusy
            | OfRegion::UpstreamHangs
            | OfRegion::UpstreamHangsInBody => vec![named("upstream", region)],
            OfRegion::ClientClocksFast | OfRegion::ClientClocksSlow => vec![named("clients", region)],
            OfRegion::ProbesSilent | OfRegion::ProbesCannotSay => vec![named("probes", region)],
            // One change of the view at a time, as operators work.
            OfRegion::Drain | OfRegion::RingChange => vec![alone("operator".to_owned())],
        },
        Happens::Link(kind, from, to) => match kind {
            // Neither knows of cuts: whoever dies meanwhile dies with what it has not handed on.
            OfLink::SlotLost => vec![alone(format!("slot {from}>{to}"))],
            OfLink::ReplicationSlow => vec![alone(format!("pace {from}>{to}"))],
            OfLink::LettersLost | OfLink::LettersLate => {
                let organ = |letter: &Letter| alone(format!("letters {} {from}>{to}", letter.name()));
                how.letters.iter().map(organ).collect()
            }
            OfLink::LinkCut
            | OfLink::OneWayCut
            | OfLink::LinkRefuses
            | OfLink::LinkLosesRequests
            | OfLink::LinkLosesReplies
            | OfLink::LinkSlow
            | OfLink::LinkFlaps
            | OfLink::ReplicationStalls => vec![alone(link(from, to))],
        },
        Happens::Anywhere(_) => Vec::new(),
    }
}
