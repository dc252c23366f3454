//! What an operator does, as the README says: drain and resume, other weights, an empty store in the place of one that is gone.
//!
//! Neighbours: [`super::faults`] has them done; each command goes to a gateway that is well and is repeated while it says "not yet". It
//! must not do anything that an operator cannot.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use onceway::gateway::Gateway;
use onceway::gateway::authority::acts::ActError;
use onceway::protocol::region::RegionName;
use onceway::protocol::ring::{RegionSpec, Ring, RingSpec};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::log::Log;
use crate::deployment::Deployment;
use crate::ports::SimPorts;
use crate::rivals::Design;

/// For how long an operator repeats a command, and how often.
const PATIENCE: Duration = Duration::from_secs(120);
const AGAIN: Duration = Duration::from_millis(500);
/// How long a command waits for its answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);
const ACTOR: &str = "operator";

/// One command.
enum Act {
    /// `onceway takeover`, as a region that nobody declares lost by themselves has to be first, and `onceway region rebuild --accept-risk`.
    Rebuild,
    /// `onceway region drain`.
    Drain,
    /// `onceway region resume`.
    Resume,
    /// `onceway ring apply`.
    Apply(Arc<Ring>),
}

impl Act {
    async fn perform(
        &self,
        gateway: &Arc<Gateway<SimPorts>>,
        region: &RegionName,
        escrow: BTreeSet<Arc<str>>,
    ) -> Result<(), ActError> {
        match self {
            Self::Rebuild => {
                // Refused where the region is lost already, or its lease not over yet: then the rebuild says what is missing.
                let _ = gateway.takeover(region, false, ACTOR, "its disk is gone").await;
                gateway.rebuild(region, true, ACTOR, "its disk is gone").await.map(|_| ())
            }
            Self::Drain => gateway.drain(region, false, ACTOR, "a drill").await.map(|_| ()),
            Self::Resume => gateway.resume(region, ACTOR).await.map(|_| ()),
            Self::Apply(ring) => {
                let epoch = gateway.pong().await.epoch;
                gateway.apply(ring.clone(), escrow, epoch, ACTOR).await.map(|_| ())
            }
        }
    }
}

/// The region's disk is gone with all that had not left it; an empty store takes its place once its loss was accepted.
pub async fn disk_lost(deployment: &Arc<Deployment>, log: &Log, region: &RegionName, until: Instant) {
    deployment.lose(region);
    deployment.world.cluster.destroy(region);
    sleep_until(until).await;
    replace(deployment, log, region).await;
}

/// Its Postgres comes back as it was when the fault began: noticed, and replaced.
pub async fn store_restored(deployment: &Arc<Deployment>, log: &Log, region: &RegionName, until: Instant) {
    let copy = deployment.world.cluster.copy(region);
    sleep_until(until).await;
    deployment.lose(region);
    deployment.world.cluster.restore(region, copy);
    deployment.bring_back(region);
    // Long enough for its gateway to be asked for keys, which it must not run.
    sleep(Duration::from_secs(5)).await;
    deployment.lose(region);
    deployment.world.cluster.destroy(region);
    replace(deployment, log, region).await;
}

async fn replace(deployment: &Arc<Deployment>, log: &Log, region: &RegionName) {
    repeated(deployment, log, region, &Act::Rebuild).await;
    deployment.world.cluster.rebuild(region);
    deployment.normal_store(region);
    deployment.cut_off(region, false);
    deployment.begin_process(region);
}

/// Drains a region, and resumes it.
pub async fn drain(deployment: &Arc<Deployment>, log: &Log, region: &RegionName, until: Instant) {
    repeated(deployment, log, region, &Act::Drain).await;
    sleep_until(until).await;
    repeated(deployment, log, region, &Act::Resume).await;
}

/// Gives a region twice its weight, and takes that back.
pub async fn ring_change(deployment: &Arc<Deployment>, log: &Log, region: &RegionName, until: Instant) {
    let before = deployment.scenario().shared.ring.clone();
    let RingSpec { seed, place_by, regions, pins } = before.spec();
    let doubled = |spec: &RegionSpec| match spec.name == *region {
        true => RegionSpec { name: spec.name.clone(), weight: (spec.weight * 2).max(1) },
        false => spec.clone(),
    };
    let spec = RingSpec { seed, place_by, regions: regions.iter().map(doubled).collect(), pins };
    let Ok(after) = Ring::build(&spec) else {
        log.not_possible(format!("ring-change at {region}: a weight is too great to be doubled"));
        return;
    };
    repeated(deployment, log, region, &Act::Apply(Arc::new(after))).await;
    sleep_until(until).await;
    repeated(deployment, log, region, &Act::Apply(before)).await;
}

/// Resumes whatever is drained still when everything else was mended.
pub async fn resume_all(deployment: &Arc<Deployment>, log: &Log) {
    for region in deployment.regions().to_vec() {
        let drained = deployment
            .node(&region)
            .gateway
            .authority_status()
            .regions
            .into_iter()
            .any(|status| status.name == region.as_str() && status.standing == "drained");
        if drained {
            repeated(deployment, log, &region, &Act::Resume).await;
        }
    }
}

/// Asks a gateway that is well, another region's if there is one, again and again while it is not possible yet.
async fn repeated(deployment: &Arc<Deployment>, log: &Log, about: &RegionName, act: &Act) {
    if deployment.design() != Design::Onceway {
        // No other design has such commands.
        return;
    }
    let end = Instant::now() + PATIENCE;
    let mut turn = 0;
    loop {
        let others: Vec<_> = deployment.regions().iter().filter(|region| *region != about).collect();
        let asked = others.get(turn % others.len().max(1)).copied().unwrap_or(about);
        turn += 1;
        let node = deployment.node(asked);
        let escrow = deployment.scenario().shared.escrow();
        let told = node.process.while_alive(act.perform(&node.gateway, about, escrow));
        match timeout(ANSWER_WITHIN, told).await {
            Ok(Some(Ok(()))) => return,
            Ok(Some(Err(error))) if Instant::now() >= end => {
                log.not_possible(format!("an operator's command about {about}: {error}"));
                return;
            }
            Ok(Some(Err(_)) | None) | Err(_) if Instant::now() < end => sleep(AGAIN).await,
            Ok(Some(Err(_)) | None) | Err(_) => {
                log.not_possible(format!("an operator's command about {about}: nobody answered"));
                return;
            }
        }
    }
}
