//! The operator on call, who acts once a call in the gateways' status lasted long enough.
//!
//! The operator goes by the product's own words: a hindrance that needs an operator, leases that
//! nobody holds, and the names in the answer of `break-glass`.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use onceway::gateway::authority::status::AuthorityStatus;
use onceway::protocol::region::RegionName;
use tokio::time::{Instant, sleep, timeout};

use super::acts::ACTOR;
use super::organs::{self, Stage, Taken};

const LOOK_EVERY: Duration = Duration::from_secs(1);
/// The time limit for a gateway to show its status.
const STATUS_WITHIN: Duration = Duration::from_secs(2);
const ANSWER_WITHIN: Duration = Duration::from_secs(30);
/// The words of `break-glass` about a gateway whose answer it needs.
const NOT_SAID_TO_BE: &str = "are not said to be stopped";

/// A call in a gateway's status that only an operator can answer.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Call {
    /// Keys wait until an operator accepts the risk of this region's loss.
    Risk(RegionName),
    /// No gateway that answers holds a lease. `break-glass` says if a majority is left.
    Glass,
}

pub struct Operator {
    stage: Stage,
    /// The time since which a call lasts without a break, or since it was last acted on.
    since: BTreeMap<Call, Instant>,
}

impl Operator {
    pub fn new(stage: Stage) -> Self {
        Self { stage, since: BTreeMap::new() }
    }

    /// Looks and acts until it is dropped.
    pub async fn run(mut self) {
        loop {
            self.look().await;
            sleep(LOOK_EVERY).await;
        }
    }

    async fn look(&mut self) {
        let calls = self.calls().await;
        self.since.retain(|call, _| calls.contains_key(call));
        let now = Instant::now();
        let waits = self.stage.deployment.scenario.operator;
        for (call, who) in calls {
            let wait = match call {
                Call::Risk(_) => waits.accepts_risk_after,
                Call::Glass => waits.breaks_glass_after,
            };
            if now.duration_since(*self.since.entry(call.clone()).or_insert(now)) < wait {
                continue;
            }
            match &call {
                Call::Risk(region) => self.accept_risk(&who[0], region).await,
                Call::Glass => self.break_glass(&who).await,
            }
            self.since.insert(call, Instant::now());
        }
    }

    /// The calls, each with the gateways that make it.
    async fn calls(&self) -> BTreeMap<Call, Vec<RegionName>> {
        let mut calls: BTreeMap<Call, Vec<RegionName>> = BTreeMap::new();
        let mut somebody_runs = false;
        for region in self.stage.deployment.regions() {
            let Some(authority) = self.status(region).await else { continue };
            somebody_runs |= authority.lease.held;
            for hindrance in authority.opening.iter().filter(|hindrance| hindrance.needs_operator) {
                if let Ok(about) = RegionName::parse(&hindrance.region) {
                    calls.entry(Call::Risk(about)).or_default().push(region.clone());
                }
            }
            calls.entry(Call::Glass).or_default().push(region.clone());
        }
        if somebody_runs {
            calls.remove(&Call::Glass);
        }
        calls
    }

    /// The output of `onceway status` of a region; `None` if its gateway does not answer.
    async fn status(&self, region: &RegionName) -> Option<AuthorityStatus> {
        let node = self.stage.deployment.node(region);
        let shown = node.process.while_alive(async {
            node.process.runs().await;
            node.gateway.authority_status()
        });
        timeout(STATUS_WITHIN, shown).await.ok().flatten()
    }

    /// `onceway takeover REGION --accept-risk`, at a gateway that asks for it.
    async fn accept_risk(&self, by: &RegionName, region: &RegionName) {
        let node = self.stage.deployment.node(by);
        let asked = node.gateway.takeover(region, true, ACTOR, "nobody can say what it had");
        let why = match timeout(ANSWER_WITHIN, node.process.while_alive(asked)).await {
            Ok(Some(Ok(done))) => {
                let waived = done.waived.join(", ");
                let text = format!("accepts the risk of the loss of {region}: {waived} open without it");
                return self.stage.log.acted(text);
            }
            Ok(Some(Err(error))) => error.to_string(),
            Ok(None) | Err(_) => format!("{by} does not answer"),
        };
        self.stage.log.not_possible(format!("the risk of {region} was not accepted: {why}"));
    }

    /// `onceway break-glass`, at one gateway after the other. The operator attests that dead
    /// gateways are stopped. Other gateways that the command names are stopped first, and started
    /// again afterwards.
    async fn break_glass(&self, answering: &[RegionName]) {
        let quiet = self.stage.organs.may_begin().await;
        let mut stopped: Vec<(RegionName, Taken<'_>)> = Vec::new();
        for by in answering {
            if stopped.iter().any(|(region, _)| region == by) {
                continue;
            }
            let answer = match self.attest(by).await {
                Err(why) if why.contains(NOT_SAID_TO_BE) && self.stop_named(by, &why, &mut stopped) => {
                    self.attest(by).await
                }
                answer => answer,
            };
            match answer {
                Ok(said) => {
                    self.stage.log.acted(said);
                    break;
                }
                Err(why) => self.stage.log.not_possible(format!("the glass was not broken at {by}: {why}")),
            }
        }
        drop(quiet);
        stopped.iter().for_each(|(region, _)| self.stage.deployment.begin_process(region));
    }

    /// Stops the gateways of all named regions, but not the asking one's, nor what a fault holds.
    fn stop_named<'a>(
        &'a self,
        by: &RegionName,
        why: &str,
        stopped: &mut Vec<(RegionName, Taken<'a>)>,
    ) -> bool {
        let asked = why.split_once(NOT_SAID_TO_BE).map_or("", |(names, _)| names);
        let regions = self.stage.deployment.regions();
        let named: Vec<&RegionName> =
            regions.iter().filter(|region| asked.contains(region.as_str())).collect();
        if named.is_empty() || named.contains(&by) {
            return false;
        }
        for region in named {
            let Some(taken) = self.stage.organs.take(organs::process(region)) else { return false };
            self.stage.deployment.node(region).process.kill();
            stopped.push((region.clone(), taken));
        }
        true
    }

    /// Attests at a gateway that all regions with dead gateways are stopped.
    async fn attest(&self, by: &RegionName) -> Result<String, String> {
        let is_dead = |region: &&RegionName| self.stage.deployment.node(region).process.is_dead();
        let stopped: BTreeSet<_> = self.stage.deployment.regions().iter().filter(is_dead).cloned().collect();
        let node = self.stage.deployment.node(by);
        let asked = node.gateway.break_glass(&stopped, ACTOR, "their gateways are switched off");
        match timeout(ANSWER_WITHIN, node.process.while_alive(asked)).await {
            Ok(Some(Ok(epoch))) => {
                Ok(format!("breaks the glass at {by}: {stopped:?} are stopped, view {epoch}"))
            }
            Ok(Some(Err(error))) => Err(error.detail),
            Ok(None) | Err(_) => Err("its gateway does not answer".to_owned()),
        }
    }
}
