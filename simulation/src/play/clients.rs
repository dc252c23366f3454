//! Clients: they send keys, retry, move to another region, and send some keys twice.
//!
//! `scenario::workload` has their settings.

use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use onceway::protocol::key::{Key, KeyId};
use onceway::protocol::region::RegionName;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::log::Asked;
use super::organs::Stage;
use crate::deployment::{Reply, request};
use crate::dice::Chance;
use crate::scenario::workload::{Workload, tenant};

/// The longest wait of a client before it uses a key for another request.
const WRONG_WITHIN: Duration = Duration::from_secs(20);

/// The body of a key's own client, and of one that uses the key by mistake, which is refused.
pub const BODIES: [&str; 2] = ["{}", r#"{"mistaken":true}"#];

/// The problem code for the second of two different requests under one key.
pub const KEY_REUSED: &str = "key-reused";

/// The problem code for a key whose life is over, while that is still remembered.
pub const KEY_EXPIRED: &str = "key-expired";

#[derive(Clone, Debug)]
pub struct Sent {
    pub id: KeyId,
    pub tenant: u32,
    pub workload: Arc<Workload>,
}

/// Sends new keys of a workload until `end`, each by its own client. Returns them in the end.
pub async fn run(stage: Stage, chance: Chance, workload: Arc<Workload>, end: Instant) -> Vec<Sent> {
    let (mut clients, mut sent) = (JoinSet::new(), Vec::new());
    // The mean time between two keys. At a rate of 0 no key is sent, and the task ends at once.
    let Some(mean) = Duration::from_secs(100).checked_div(workload.rate) else { return sent };
    loop {
        sleep(chance.about(mean)).await;
        if Instant::now() >= end {
            break;
        }
        let tenant_number = chance.below(u64::from(workload.tenants)) as u32;
        let Ok(key) = Key::parse(&format!("{}-{}", workload.name, sent.len())) else { break };
        let id = KeyId::new(tenant(tenant_number), key);
        let key = Sent { id, tenant: tenant_number, workload: workload.clone() };
        let at_two = chance.percent(workload.at_two);
        let client = |body| Client { stage: stage.clone(), chance: chance.split(), key: key.clone(), body };
        for _ in 0..=u32::from(at_two) {
            clients.spawn(client(BODIES[0]).go());
        }
        // Nothing is drawn if no client makes the mistake, so that all other draws stay the same.
        if workload.other_body > 0 && chance.percent(workload.other_body) {
            clients.spawn(client(BODIES[1]).go_wrong());
        }
        sent.push(key);
    }
    while clients.join_next().await.is_some() {}
    sent
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Answered,
    /// The key was used for another request: a client's mistake, and no failure of the gateways.
    AnothersKey,
    GivenUp,
}

struct Client {
    stage: Stage,
    chance: Chance,
    key: Sent,
    body: &'static str,
}

impl Client {
    /// Uses the same key for another request, at the same time or later, from anywhere.
    async fn go_wrong(self) {
        if self.chance.percent(50) {
            sleep(self.chance.within(WRONG_WITHIN)).await;
        }
        self.insist(self.one_of(self.stage.deployment.regions())).await;
    }

    fn one_of(&self, regions: &[RegionName]) -> RegionName {
        regions[self.chance.below(regions.len() as u64) as usize].clone()
    }

    async fn go(self) {
        let workload = &self.key.workload;
        let near = if workload.near.is_empty() { self.stage.deployment.regions() } else { &workload.near };
        match self.insist(self.one_of(near)).await {
            End::GivenUp => self.stage.log.gave_up(&self.key.id),
            End::Answered if self.chance.percent(workload.again) => {
                sleep(self.chance.within(workload.again_within)).await;
                self.insist(self.one_of(self.stage.deployment.regions())).await;
            }
            End::Answered | End::AnothersKey => {}
        }
    }

    /// Sends the key until it is answered, or the client gives up.
    async fn insist(&self, mut at: RegionName) -> End {
        let retry = self.key.workload.retry;
        let mut pause = retry.first;
        let mut silent: Option<Instant> = None;
        let end = Instant::now() + self.stage.deployment.by_client(&at, retry.gives_up);
        for _ in 0..retry.attempts {
            if Instant::now() >= end {
                return End::GivenUp;
            }
            let patience = self.stage.deployment.by_client(&at, retry.timeout);
            let reply = ask(&self.stage, &self.key, self.body, &at, patience).await;
            let mut wait = pause / 2 + self.chance.within(pause);
            match &reply {
                Reply::Answered { status, code, retry_after, .. } => {
                    silent = None;
                    if reply.is_answer() {
                        return End::Answered;
                    }
                    if code == KEY_REUSED {
                        return End::AnothersKey;
                    }
                    if is_final(*status, code) {
                        return End::GivenUp;
                    }
                    wait = wait.max(retry_after.unwrap_or_default());
                }
                Reply::Broken | Reply::TimedOut => {
                    let since = *silent.get_or_insert_with(Instant::now);
                    if since.elapsed() >= retry.dns {
                        at = self.nearest_but(&at);
                        silent = None;
                    }
                }
            }
            let wait = self.stage.deployment.by_client(&at, wait);
            sleep(wait.min(end.saturating_duration_since(Instant::now()))).await;
            pause = (pause * 2).min(retry.most);
        }
        End::GivenUp
    }

    /// The region that the gateway's name resolves to once a region does not answer any more.
    fn nearest_but(&self, at: &RegionName) -> RegionName {
        let network = &self.stage.deployment.scenario.network;
        let others = self.stage.deployment.regions().iter().filter(|other| *other != at);
        let alive = others.filter(|other| !self.stage.deployment.node(other).process.is_dead());
        alive.min_by_key(|other| network.one_way(at, other)).unwrap_or(at).clone()
    }
}

/// True for problems that no retry changes: mistakes, a key that is over, and a dead letter.
fn is_final(status: StatusCode, code: &str) -> bool {
    match status {
        StatusCode::CONFLICT => code == "dead-letter",
        StatusCode::TOO_MANY_REQUESTS => false,
        other => other.is_client_error(),
    }
}

pub async fn ask(stage: &Stage, key: &Sent, body: &'static str, at: &RegionName, within: Duration) -> Reply {
    let begun = Instant::now();
    let request = request(&key.workload.path, key.tenant, key.id.key().as_str(), body);
    let reply = stage.deployment.send(at, request, within).await;
    let (ended, id) = (Instant::now(), key.id.clone());
    stage.log.asked(Asked { begun, ended, id, body, at: at.clone(), reply: reply.clone() });
    reply
}
