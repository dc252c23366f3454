//! The clients of a drill: they start keys at a steady rate in each region, and retry each key
//! through other regions until it ends. A client obeys `Retry-After` and the problem's
//! documentation, and can do no more than any client of an API.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::Instant;

use super::ask::{Exchange, Received};
use crate::deployment::Deployment;
use crate::files::{self, keyed};
use crate::region::Region;
use crate::{lock, wait};
use onceway_client::Connections;
use onceway_protocol::key::{Key, KeyId, Tenant};
pub use onceway_protocol::record::Recovery;
use onceway_protocol::ring::Ring;

const BODY: &str = r#"{"amount":2000,"currency":"usd","source":"tok_visa"}"#;
/// Longer than a gateway works on an answer (`wait`, `upstream_timeout` of the demo's routes).
pub const PATIENCE: Duration = Duration::from_secs(8);
/// First and longest pause between two tries, if the answer gives none.
const PAUSES: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(2));
/// Most unended keys of one region's clients; they start no new key beyond.
const MOST_OPEN: usize = 40;
/// Number of keys asked for at once when everything is over.
const AT_ONCE: usize = 8;
/// Answers "in doubt" for a parked key after the fault, until it is the operator's.
const PARKED_ENOUGH: u32 = 3;

#[derive(Clone, Copy, Debug)]
pub struct Class {
    pub name: &'static str,
    pub path: &'static str,
    pub recovery: Recovery,
    /// True if claims are lodged in another region first.
    pub escrow: bool,
}

const RERUN: Recovery = Recovery::Rerun { max_attempts: 3 };

pub const CLASSES: [Class; 4] = [
    Class { name: "payouts: park, escrow", path: "/v1/payouts", recovery: Recovery::Park, escrow: true },
    Class { name: "charges: probe", path: "/v1/charges", recovery: Recovery::Probe, escrow: false },
    Class { name: "notes: park", path: "/v1/notes", recovery: Recovery::Park, escrow: false },
    Class { name: "emails: rerun", path: "/v1/emails", recovery: RERUN, escrow: false },
];

/// Classes for probes: without escrow the window counts.
pub const PLAIN: usize = 1;
pub const LODGED: usize = 0;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// The upstream's answer.
    Definite,
    /// An answer that the outcome is unknown.
    InDoubt,
    Without(String),
}

#[derive(Clone, Debug)]
pub struct KeyLife {
    pub key: String,
    pub class: usize,
    pub exchanges: Vec<Exchange>,
    pub end: End,
}

impl KeyLife {
    pub fn begun(key: String, class: usize, exchanges: Vec<Exchange>) -> KeyLife {
        KeyLife { key, class, exchanges, end: End::Without("nothing".to_owned()) }
    }
}

/// Shared state of the clients: the regions' addresses, the placement of keys, and the histories.
pub struct Field {
    /// Public listeners, by region number.
    pub addresses: Vec<String>,
    pub names: Vec<String>,
    /// The current ring; `drill ring` changes it.
    ring: Mutex<Arc<Ring>>,
    connections: Connections,
    mark: String,
    tenant: Tenant,
    /// The moment until which unended keys may try, once no new ones are started.
    phase: watch::Sender<Option<Instant>>,
    lives: Mutex<Vec<KeyLife>>,
    held_back: AtomicU64,
}

impl Field {
    pub fn new(deployment: &Deployment, ring: Arc<Ring>, mark: String) -> Result<Arc<Field>> {
        let regions = &deployment.regions;
        Ok(Arc::new(Field {
            addresses: regions.iter().map(Region::public).collect(),
            names: regions.iter().map(|region| region.name.to_string()).collect(),
            ring: Mutex::new(ring),
            connections: Connections::default(),
            mark,
            tenant: Tenant::parse(files::TENANTS[0].0).ok().context("the demo's tenant")?,
            phase: watch::Sender::new(None),
            lives: Mutex::default(),
            held_back: AtomicU64::new(0),
        }))
    }

    /// Beginning of every key of this run.
    pub fn mark(&self) -> &str {
        &self.mark
    }

    /// The numbers of a key's regions, home first, under `ring`.
    pub fn order_in(&self, ring: &Ring, key: &str) -> Vec<usize> {
        let Ok(key) = Key::parse(key) else { return Vec::new() };
        let id = KeyId::new(self.tenant.clone(), key);
        let number = |name: &str| self.names.iter().position(|own| own == name);
        ring.order(&id).names().filter_map(|name| number(name.as_str())).collect()
    }

    pub fn order(&self, key: &str) -> Vec<usize> {
        self.order_in(&self.ring(), key)
    }

    pub fn ring(&self) -> Arc<Ring> {
        lock(&self.ring).clone()
    }

    pub fn set_ring(&self, ring: Arc<Ring>) {
        *lock(&self.ring) = ring;
    }

    pub async fn ask(&self, via: usize, class: usize, key: &str, within: Duration) -> Exchange {
        let ask = keyed(&self.addresses[via], CLASSES[class].path, key, BODY);
        let sent = Instant::now();
        let got = Received::of(self.connections.send(ask, within).await);
        Exchange { via, sent, done: Instant::now(), received: got }
    }

    pub fn lives(&self) -> MutexGuard<'_, Vec<KeyLife>> {
        lock(&self.lives)
    }

    /// Number of keys that were not started because too many were unended.
    pub fn held_back(&self) -> u64 {
        self.held_back.load(Relaxed)
    }

    fn deadline(&self) -> Option<Instant> {
        *self.phase.borrow()
    }
}

pub struct Load {
    field: Arc<Field>,
    clients: Vec<JoinHandle<()>>,
}

impl Load {
    /// Starts clients in all regions that begin `rate` keys per second together.
    pub fn start(field: &Arc<Field>, rate: f64) -> Load {
        let regions = field.addresses.len();
        let period = Duration::from_secs_f64(regions as f64 / rate);
        let client = |region: usize| {
            let first = Instant::now() + period.mul_f64(region as f64 / regions as f64);
            tokio::spawn(client(field.clone(), region, first, period))
        };
        Load { field: field.clone(), clients: (0..regions).map(client).collect() }
    }

    /// Starts no more keys, and returns when each has its end, or a last try after `within`.
    pub async fn end(self, within: Duration) -> Result<()> {
        self.field.phase.send_replace(Some(Instant::now() + within));
        for client in self.clients {
            client.await.context("a client")?;
        }
        Ok(())
    }
}

async fn client(field: Arc<Field>, region: usize, mut due: Instant, period: Duration) {
    let mut lives = JoinSet::new();
    let mut ending = field.phase.subscribe();
    for number in 0_usize.. {
        tokio::select! {
            biased;
            _ = ending.wait_for(Option::is_some) => break,
            () = wait::pause_until(due) => due += period,
        }
        while lives.try_join_next().is_some() {}
        if lives.len() >= MOST_OPEN {
            field.held_back.fetch_add(1, Relaxed);
            continue;
        }
        lives.spawn(live(field.clone(), region, number));
    }
    while lives.join_next().await.is_some() {}
}

async fn live(field: Arc<Field>, region: usize, number: usize) {
    let key = format!("{}-{region}-{number}", field.mark);
    let class = number % CLASSES.len();
    let mut life = KeyLife::begun(key, class, Vec::new());
    // Some clients send twice at once: an impatient user, or a proxy that hedges.
    if number.is_multiple_of(7) {
        let other = (region + 1) % field.addresses.len();
        let (one, two) = tokio::join!(
            field.ask(region, class, &life.key, PATIENCE),
            field.ask(other, class, &life.key, PATIENCE)
        );
        life.exchanges.extend([one, two]);
    } else {
        life.exchanges.push(field.ask(region, class, &life.key, PATIENCE).await);
    }
    bring_to_end(&field, &mut life, region, number).await;
    // Some clients lose their answer and ask another region, although everything is well.
    if life.end == End::Definite && number.is_multiple_of(3) {
        let other = (region + 1 + number % 2) % field.addresses.len();
        life.exchanges.push(field.ask(other, class, &life.key, PATIENCE).await);
    }
    field.lives().push(life);
}

/// Retries through the next region, until the upstream's answer or the deadline.
async fn bring_to_end(field: &Field, life: &mut KeyLife, region: usize, number: usize) {
    let (mut via, mut pause, mut parked) = (region, PAUSES.0, 0);
    loop {
        if life.exchanges.iter().any(|exchange| exchange.received.success().is_some()) {
            life.end = End::Definite;
            return;
        }
        let Some(last) = life.exchanges.last() else { return };
        let got = last.received.clone();
        // Any other refusal means that the same request would be refused again.
        if got.answer().is_some_and(|answer| answer.status < 500 && ![409, 429].contains(&answer.status)) {
            life.end = End::Without(got.word());
            return;
        }
        let doubtful = got.is(409, "outcome-unknown") || got.is(504, "outcome-unknown");
        if let Some(deadline) = field.deadline() {
            parked += u32::from(doubtful && CLASSES[life.class].recovery == Recovery::Park);
            if parked >= PARKED_ENOUGH || Instant::now() > deadline {
                life.end = if doubtful { End::InDoubt } else { End::Without(got.word()) };
                return;
            }
        }
        wait::pause(before_retry(&got, pause, number)).await;
        pause = (pause * 3 / 2).min(PAUSES.1);
        via = (via + 1) % field.addresses.len();
        life.exchanges.push(field.ask(via, life.class, &life.key, PATIENCE).await);
    }
}

/// The pause that the answer asks for, at most two seconds, and spread. Clients that lost their
/// connections together must not return together.
fn before_retry(got: &Received, pause: Duration, number: usize) -> Duration {
    let asked = got.answer().and_then(|answer| answer.retry_after.parse().ok()).map(Duration::from_secs);
    asked.unwrap_or(pause).clamp(PAUSES.0, PAUSES.1).mul_f64(0.8 + 0.05 * (number % 9) as f64)
}

async fn has_room(running: &mut JoinSet<()>, field: &Arc<Field>) -> Arc<Field> {
    if running.len() >= AT_ONCE {
        running.join_next().await;
    }
    field.clone()
}

/// Brings keys that were asked for once to their end, and adds their histories.
pub async fn bring_all(field: &Arc<Field>, lives: Vec<KeyLife>, within: Duration) {
    let mut bringing = JoinSet::new();
    for (number, mut life) in lives.into_iter().enumerate() {
        let field = has_room(&mut bringing, field).await;
        // Each key has as much time as the first, whatever their number.
        field.phase.send_replace(Some(Instant::now() + within));
        bringing.spawn(async move {
            let via = life.exchanges.last().map_or(0, |last| last.via);
            bring_to_end(&field, &mut life, via, number).await;
            field.lives().push(life);
        });
    }
    while bringing.join_next().await.is_some() {}
}

/// Asks again for keys that had their answer: first those that needed more than one try, then
/// others. Adds the answers to their histories.
pub async fn ask_again(field: &Arc<Field>, most: usize) {
    let mut keys: Vec<(usize, String, usize, bool)> = {
        let lives = field.lives();
        let answered = lives.iter().enumerate().filter(|(_, life)| life.end == End::Definite);
        answered.map(|(at, life)| (at, life.key.clone(), life.class, life.exchanges.len() < 3)).collect()
    };
    // Keys with trouble come first.
    keys.sort_by_key(|(at, _, _, smooth)| (*smooth, *at));
    keys.truncate(most);
    let mut asking = JoinSet::new();
    for (number, (at, key, class, _)) in keys.into_iter().enumerate() {
        let field = has_room(&mut asking, field).await;
        asking.spawn(async move {
            let again = field.ask(number % field.addresses.len(), class, &key, PATIENCE).await;
            if let Some(life) = field.lives().get_mut(at) {
                life.exchanges.push(again);
            }
        });
    }
    while asking.join_next().await.is_some() {}
}
