//! The acts of an operator, as the pages of docs/operate say.
//!
//! Each command goes to a healthy gateway and is repeated while it answers "not yet".

use std::sync::Arc;
use std::time::Duration;

use onceway::config::shared::Shared;
use onceway::gateway::authority::act_error::ActError;
use onceway::protocol::region::RegionName;
use onceway::protocol::ring::Ring;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::organs::Stage;
use crate::deployment::{Deployment, Node};

/// The time for which an operator repeats a command, and the pause between two tries. Nobody gives
/// up a region that needs a new store.
const PATIENCE: Duration = Duration::from_secs(120);
const PATIENCE_FOR_A_STORE: Duration = Duration::from_secs(600);
/// The time for which an operator waits until others have heard of a later heartbeat than a copy's.
const PATIENCE_FOR_A_COPY: Duration = Duration::from_secs(30);
const AGAIN: Duration = Duration::from_millis(500);
const ANSWER_WITHIN: Duration = Duration::from_secs(10);
pub(super) const ACTOR: &str = "operator";

enum Act {
    /// The takeover before it is for a region that was not declared lost automatically.
    Rebuild,
    Drain,
    Resume,
    Apply(Arc<Ring>),
}

impl Act {
    async fn perform(
        &self,
        at: &Node,
        region: &RegionName,
        shared: &Shared,
    ) -> Result<Option<u32>, ActError> {
        let gateway = &at.gateway;
        match self {
            Self::Rebuild => {
                // If the region's lease is not over yet, both errors name the missing condition.
                let lost = gateway.takeover(region, false, ACTOR, "its disk is gone").await;
                let done = gateway.rebuild(region, true, ACTOR, "its disk is gone").await;
                let done = done.map_err(|error| match lost {
                    Ok(_) => error,
                    Err(first) => ActError { code: error.code, detail: format!("{first}; {error}") },
                })?;
                Ok(Some(done.generation))
            }
            Self::Drain => gateway.drain(region, false, ACTOR, "a drill").await.map(|_| None),
            Self::Resume => gateway.resume(region, ACTOR).await.map(|_| None),
            Self::Apply(ring) => {
                let epoch = gateway.pong().await.epoch;
                gateway.apply(ring.clone(), shared.escrow(), epoch, ACTOR).await.map(|_| None)
            }
        }
    }
}

/// Destroys the region's disk. An empty store replaces it once the region's loss was accepted.
pub async fn disk_lost(stage: &Stage, region: &RegionName, until: Instant, copied: Duration) {
    let deployment = &stage.deployment;
    deployment.lose(region);
    deployment.world.cluster.destroy(region);
    sleep_until(until).await;
    replace(stage, region, copied).await;
}

/// Restores the region's Postgres to its state at the beginning of the fault. That is noticed, and
/// the store is replaced. Every other region must have heard of a later heartbeat than the copy's
/// by then. Otherwise the copy goes unnoticed
/// (docs/not-promised.md#a-store-restored-from-an-old-copy).
pub async fn store_restored(stage: &Stage, region: &RegionName, until: Instant, copied: Duration) {
    let deployment = &stage.deployment;
    let copy = deployment.world.cluster.copy(region);
    sleep_until(until).await;
    if !will_be_noticed(deployment, region, copy.heartbeat()).await {
        stage.log.not_possible(format!("store-restored at {region}: others have not heard of what it wrote"));
        return;
    }
    deployment.lose(region);
    deployment.world.cluster.restore(region, copy);
    deployment.bring_back(region);
    // Long enough that clients ask its gateway for keys, which it must not run.
    sleep(Duration::from_secs(5)).await;
    deployment.lose(region);
    deployment.world.cluster.destroy(region);
    replace(stage, region, copied).await;
}

/// Waits until all other gateways have heard of a later heartbeat than this one; false if not.
async fn will_be_noticed(deployment: &Deployment, region: &RegionName, copied: u64) -> bool {
    let origin = deployment.world.cluster.origin(region);
    let end = Instant::now() + PATIENCE_FOR_A_COPY;
    loop {
        let mut all_heard = true;
        for other in deployment.regions().iter().filter(|other| *other != region) {
            let pong = deployment.node(other).gateway.pong().await;
            let heard = pong.heard.get(&origin).max(pong.applied.get(&origin));
            all_heard &= heard.is_some_and(|heard| *heard > copied);
        }
        if all_heard || Instant::now() >= end {
            return all_heard;
        }
        sleep(AGAIN).await;
    }
}

/// Loses the slot that one region keeps for the other. The operator reseeds it once both answer.
pub async fn slot_lost(stage: &Stage, [from, to]: [&RegionName; 2], until: Instant, copied: Duration) {
    let cluster = &stage.deployment.world.cluster;
    cluster.lose_slot(from, to);
    sleep_until(until).await;
    let end = Instant::now() + PATIENCE_FOR_A_STORE;
    while !(cluster.is_up(from) && cluster.is_up(to)) && Instant::now() < end {
        sleep(AGAIN).await;
    }
    cluster.reseed(from, to, copied);
    sleep(copied).await;
}

/// Replaces a lost store by an empty one, of the generation that the rebuild asks for.
async fn replace(stage: &Stage, region: &RegionName, copied: Duration) {
    let deployment = &stage.deployment;
    // If no majority can agree on it, the store stays away for good, and that is reported.
    let Some(answer) = repeated(stage, region, &Act::Rebuild).await else { return };
    let generation = answer.unwrap_or(deployment.world.cluster.origin(region).generation + 1);
    let _begins = stage.organs.may_begin().await;
    deployment.world.cluster.rebuild_within(region, generation, copied);
    deployment.normal_store(region);
    deployment.cut_off(region, false);
    deployment.begin_process(region);
}

pub async fn drain(stage: &Stage, region: &RegionName, until: Instant) {
    repeated(stage, region, &Act::Drain).await;
    sleep_until(until).await;
    repeated(stage, region, &Act::Resume).await;
}

/// Gives a region twice its weight, and takes that back.
pub async fn ring_change(stage: &Stage, region: &RegionName, until: Instant) {
    let Stage { deployment, log, organs: _ } = stage;
    let Some(after) = deployment.scenario.doubled(region) else {
        log.not_possible(format!("ring-change at {region}: a weight is too great to be doubled"));
        return;
    };
    repeated(stage, region, &Act::Apply(after.clone())).await;
    sleep_until(until).await;
    repeated(stage, region, &Act::Apply(deployment.scenario.shared.ring.clone())).await;
}

/// Resumes all regions that are still drained after everything else was mended.
pub async fn resume_all(stage: &Stage) {
    let deployment = &stage.deployment;
    for region in deployment.regions().to_vec() {
        let mut regions = deployment.node(&region).gateway.authority_status().regions.into_iter();
        if regions.any(|status| status.name == region.as_str() && status.standing == "drained") {
            repeated(stage, &region, &Act::Resume).await;
        }
    }
}

/// Asks healthy gateways, of other regions first, until the act is possible. `None`: it never was.
async fn repeated(stage: &Stage, about: &RegionName, act: &Act) -> Option<Option<u32>> {
    let deployment = &stage.deployment;
    let patience = match act {
        Act::Rebuild => PATIENCE_FOR_A_STORE,
        Act::Drain | Act::Resume | Act::Apply(_) => PATIENCE,
    };
    let end = Instant::now() + patience;
    let mut turn = 0;
    loop {
        let others: Vec<_> = deployment.regions().iter().filter(|region| *region != about).collect();
        let asked = others.get(turn % others.len().max(1)).copied().unwrap_or(about);
        turn += 1;
        let node = deployment.node(asked);
        let answer = node.process.while_alive(act.perform(&node, about, &deployment.scenario.shared));
        let why = match timeout(ANSWER_WITHIN, answer).await {
            Ok(Some(Ok(done))) => return Some(done),
            Ok(Some(Err(error))) => error.to_string(),
            Ok(None) | Err(_) => "nobody answered".to_owned(),
        };
        if Instant::now() >= end {
            stage.log.not_possible(format!("an operator's command about {about}: {why}"));
            return None;
        }
        sleep(AGAIN).await;
    }
}
