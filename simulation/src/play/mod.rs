//! Plays a scenario with a seed: the same seed, the same play, to the byte.
//!
//! First clients ask and things break. Then everything is mended, and every region must come home
//! and every key must end. Nothing but the seed decides.

pub(crate) mod acts;
pub mod agreed;
pub mod answers;
pub(crate) mod clients;
pub(crate) mod faults;
pub mod judge;
pub mod log;
pub mod mattered;
pub(crate) mod operator;
pub(crate) mod organs;
pub(crate) mod starters;
pub(crate) mod story;

use std::sync::Arc;
use std::time::Duration;

use onceway::protocol::lifetime::Retention;
use onceway::protocol::record::Recovery;
use tokio::runtime::Builder;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::deployment::Deployment;
use crate::dice::Chance;
use crate::outcome::{Breach, Outage, Outcome};
use crate::scenario::Scenario;
use crate::words;
use clients::Sent;
use faults::Faults;
use judge::Judge;
use operator::Operator;
use organs::Stage;

/// The time between two looks at the regions that run keys and at the invariants.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// The time limit for regions to come home once all is mended, beside the settings' own times.
const HOME_WITHIN: Duration = Duration::from_secs(300);
/// The time limit for a key to end once all regions are home, in addition to its hold.
const END_WITHIN: Duration = Duration::from_secs(60);
/// The time limit for the audit to compare two answers.
const COMPARED_WITHIN: Duration = Duration::from_secs(6);

pub struct Played {
    pub outcome: Outcome,
    /// The story, line by line.
    pub story: Vec<String>,
}

/// Plays a seed on this thread, in simulated time. Panics if a runtime cannot be made, or is one
/// already.
pub fn play(scenario: &Arc<Scenario>, seed: u64, with_story: bool) -> Played {
    let Ok(runtime) = Builder::new_current_thread().enable_time().start_paused(true).build() else {
        panic!("a runtime without I/O")
    };
    runtime.block_on(played(scenario, seed, with_story))
}

async fn played(scenario: &Arc<Scenario>, seed: u64, with_story: bool) -> Played {
    let founded = Instant::now();
    let deployment = match Deployment::start(scenario, seed).await {
        Ok(deployment) => deployment,
        Err(why) => {
            let outcome = Outcome::broken(seed, "progress", format!("the regions never served: {why}"));
            return Played { outcome, story: vec![why] };
        }
    };
    let stage = Stage { deployment, log: Arc::default(), organs: Arc::default() };
    let Stage { deployment, log, organs: _ } = &stage;
    let mut judge = Judge::new(deployment.clone(), log.clone(), Instant::now(), with_story);
    let mut on_call = JoinSet::new();
    on_call.spawn(Operator::new(stage.clone()).run());
    let sent = asked_and_broken(&stage, seed, &mut judge).await;
    judge.all_mended();
    heal(&stage, &mut judge).await;
    all_end(&stage, &mut judge, &sent).await;
    on_call.abort_all();
    judge.finish();
    let mut outcome = judge.outcome(seed, founded.elapsed(), &sent);
    outcome.breaches.extend(refused_too_long(scenario, &outcome));
    let story = if with_story { story::tell(deployment, log, judge.begun, &outcome) } else { Vec::new() };
    deployment.world.network.unplug_all();
    Played { outcome, story }
}

/// The times for which keys were refused longer than the scenario lets them be.
fn refused_too_long(scenario: &Scenario, outcome: &Outcome) -> Vec<Breach> {
    let Some(beyond) = scenario.refused_beyond_lease else { return Vec::new() };
    let most = scenario.shared.failover.lease + beyond;
    let too_long = |out: &&Outage| u128::from(out.to_ms - out.from_ms) > most.as_millis();
    let breach = |Outage { home, from_ms, to_ms, .. }: &Outage| {
        let text = format!("keys of {home} were refused from {from_ms} to {to_ms} ms: {most:?} is the most");
        Breach { invariant: "service".to_owned(), at_ms: *to_ms, broke_us: to_ms * 1_000, text }
    };
    outcome.outages.iter().filter(too_long).map(breach).collect()
}

async fn asked_and_broken(stage: &Stage, seed: u64, judge: &mut Judge) -> Vec<Sent> {
    let scenario = &stage.deployment.scenario;
    let chance = Chance::new(seed);
    let begun = Instant::now();
    let end = begun + scenario.length;
    let faults = Faults::new(stage.clone(), chance.split());
    let mut breaking = JoinSet::new();
    breaking.spawn(faults.run(begun, end));
    let mut asking = JoinSet::new();
    for workload in &scenario.workloads {
        asking.spawn(clients::run(stage.clone(), chance.split(), workload.clone(), end));
    }
    // Clients go on while things are mended, until the last of them has its answer or gives up.
    while Instant::now() < end || !breaking.is_empty() {
        while breaking.try_join_next().is_some() {}
        judge.look();
        sleep(LOOK_EVERY).await;
    }
    let mut sent: Vec<Sent> = Vec::new();
    while !asking.is_empty() {
        while let Some(done) = asking.try_join_next() {
            sent.extend(done.unwrap_or_default());
        }
        judge.look();
        sleep(LOOK_EVERY).await;
    }
    sent.sort_by(|one, other| one.id.cmp(&other.id));
    sent
}

/// Resumes the regions that an operator had drained, after all was mended. All must come home.
async fn heal(stage: &Stage, judge: &mut Judge) {
    let deployment = &stage.deployment;
    acts::resume_all(stage).await;
    // Each return of a region that is lost again and again waits twice as long as the one before.
    let end = Instant::now() + HOME_WITHIN + deployment.scenario.shared.failover.stable_for * 16;
    while !deployment.is_home() {
        if Instant::now() >= end {
            judge.breach("progress", format!("not all regions came home: {}", deployment.shown()));
            return;
        }
        judge.look();
        sleep(LOOK_EVERY).await;
    }
}

/// The least time for which a key is answered; `None`: for ever.
fn life(deployment: &Deployment, key: &Sent) -> Option<Duration> {
    let own = match key.workload.policy.retention {
        Retention::For(retention) => Some(retention),
        Retention::Never => None,
    };
    own.into_iter().chain(deployment.shortest_retention()).min()
}

/// Checks that every key that was sent is answered in the end, or is in doubt and listed. A key
/// that may be past its life by then may also be expired, or run anew.
async fn all_end(stage: &Stage, judge: &mut Judge, sent: &[Sent]) {
    let mut asking = JoinSet::new();
    let passed = judge.begun.elapsed();
    let remembered =
        |key: &Sent| life(&stage.deployment, key).is_none_or(|life| life > passed + ends_within(key));
    for key in sent {
        asking.spawn(ended(stage.clone(), key.clone(), !remembered(key)));
    }
    while !asking.is_empty() {
        while let Some(done) = asking.try_join_next() {
            if let Ok(Err(why)) = done {
                judge.breach("progress", why);
            }
        }
        judge.look();
        sleep(LOOK_EVERY).await;
    }
    sleep(COMPARED_WITHIN).await;
    judge.look();
}

/// The longest time for which a key is asked for in the end.
fn ends_within(key: &Sent) -> Duration {
    END_WITHIN + (key.workload.policy.hold + key.workload.policy.settle_time) * 4
}

async fn ended(stage: Stage, key: Sent, may_expire: bool) -> Result<(), String> {
    let workload = &key.workload;
    let hold = workload.policy.hold + workload.policy.settle_time;
    // A route with `park` lists a doubt at once. A route with `rerun` lists it once its attempts
    // are used up. A route with `probe` never lists it.
    let begun = Instant::now();
    let listed_after = match workload.policy.recovery {
        Recovery::Park => Some(Duration::ZERO),
        Recovery::Rerun { .. } => Some(hold * 3),
        Recovery::Probe => None,
    };
    let end = Instant::now() + ends_within(&key);
    let at = stage.deployment.regions()[0].clone();
    // Gateways say which request was first. After more rows have arrived, it may be the other one.
    let [mut body, mut other] = clients::BODIES;
    loop {
        let reply = clients::ask(&stage, &key, body, &at, workload.retry.timeout).await;
        let code = reply.code();
        if code == clients::KEY_REUSED {
            std::mem::swap(&mut body, &mut other);
        }
        let may_be_listed = listed_after.is_some_and(|after| begun.elapsed() >= after);
        let listed = code == "dead-letter" || code == "outcome-unknown" && may_be_listed;
        if reply.is_answer() || listed || may_expire && code == clients::KEY_EXPIRED {
            return Ok(());
        }
        if Instant::now() >= end {
            let (id, last) = (words::key(&key.id), story::describe_reply(&reply));
            return Err(format!("{id} of {} does not end: {last}", workload.name));
        }
        sleep(Duration::from_millis(500)).await;
    }
}
