//! The clients of a drill: in each region some that start keys at a steady rate, and bring every key to its end, retrying through
//! other regions.
//!
//! Neighbours: `ask` carries, `verdict` judges the histories that are kept here, key by key. A client does what `Retry-After` and the
//! problem's documentation tell it, and nothing that a client of an API could not do. It must not know what is broken just now.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::Instant;

use super::ask::{Connections, Exchange, Order, Told};
use crate::fleet::deployment::Deployment;
use crate::fleet::{files, wait};
use crate::protocol::key::{Key, KeyId, Tenant};
use crate::protocol::ring::Ring;

const BODY: &str = r#"{"amount":2000,"currency":"usd","source":"tok_visa"}"#;
/// What a client waits for an answer: longer than a gateway works on one (`wait`, `upstream_timeout` of the demo's routes).
const PATIENCE: Duration = Duration::from_secs(8);
/// Between two tries, first and at most, where the answer does not say.
const PAUSES: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(2));
/// The most keys of one region's clients that have no end yet: who waits for that many answers starts no new business.
const MOST_OPEN: usize = 40;
/// How many keys are asked for at once when all is over.
const AT_ONCE: usize = 8;
/// How often a parked key is told in doubt, when all is well again, until its client leaves it to the operator.
const PARKED_ENOUGH: u32 = 3;

/// How a key's doubt is ended on a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recovery {
    /// Run again: more than one effect is what the route asks for.
    Rerun,
    /// The upstream is asked.
    Probe,
    /// Left to an operator.
    Park,
}

/// A route of the demo, and what a drill must know of it.
#[derive(Clone, Copy, Debug)]
pub struct Class {
    /// Its name in reports.
    pub name: &'static str,
    /// Its path.
    pub path: &'static str,
    /// What becomes of doubts.
    pub recovery: Recovery,
    /// Whether claims are lodged elsewhere first.
    pub escrow: bool,
}

/// The classes of keys under load, in rotation.
pub const CLASSES: [Class; 4] = [
    Class { name: "payouts: park, escrow", path: "/v1/payouts", recovery: Recovery::Park, escrow: true },
    Class { name: "charges: probe", path: "/v1/charges", recovery: Recovery::Probe, escrow: false },
    Class { name: "notes: park", path: "/v1/notes", recovery: Recovery::Park, escrow: false },
    Class { name: "emails: rerun", path: "/v1/emails", recovery: Recovery::Rerun, escrow: false },
];

/// How a key's history ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// With the upstream's answer.
    Definite,
    /// Told that its outcome is not known.
    InDoubt,
    /// The last word was another one.
    Without(String),
}

/// One key, and everything that its client was told.
#[derive(Clone, Debug)]
pub struct KeyLife {
    /// The key.
    pub key: String,
    /// Its class, by number.
    pub class: usize,
    /// Number of its home in the ring that was in force when it began.
    pub home: usize,
    /// All exchanges, in the order of their ends.
    pub exchanges: Vec<Exchange>,
    /// How it ended.
    pub end: End,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Loading,
    /// No new keys; those that live may try until then.
    Ending(Instant),
}

/// What clients share: where the regions are, which key belongs where, and what was told.
pub struct Field {
    /// Public listeners, by region number; last that of a region that may be added.
    pub addresses: Vec<String>,
    /// How many regions have clients: those that are there from the beginning.
    pub clients: usize,
    /// Names, by region number.
    pub names: Vec<String>,
    /// The ring of this moment; `drill ring` changes it.
    ring: Mutex<Arc<Ring>>,
    connections: Connections,
    mark: String,
    tenant: Tenant,
    phase: watch::Sender<Phase>,
    lives: Mutex<Vec<KeyLife>>,
    held_back: AtomicU64,
}

impl Field {
    /// For one run; `mark` makes its keys new ones.
    pub fn new(deployment: &Deployment, ring: Arc<Ring>, mark: String) -> Result<Arc<Field>> {
        let regions: Vec<_> = deployment.all().collect();
        let address = |port: u16| format!("127.0.0.1:{port}");
        Ok(Arc::new(Field {
            addresses: regions.iter().map(|region| address(region.ports.public)).collect(),
            clients: deployment.regions.len(),
            names: regions.iter().map(|region| region.name.to_string()).collect(),
            ring: Mutex::new(ring),
            connections: Connections::default(),
            mark,
            tenant: Tenant::parse(files::TENANTS[0].0).ok().context("the demo's tenant")?,
            phase: watch::Sender::new(Phase::Loading),
            lives: Mutex::default(),
            held_back: AtomicU64::new(0),
        }))
    }

    /// What every key of this run begins with.
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

    /// The numbers of a key's regions, home first.
    pub fn order(&self, key: &str) -> Vec<usize> {
        self.order_in(&self.ring(), key)
    }

    /// The ring that keys are placed by.
    pub fn ring(&self) -> Arc<Ring> {
        lock(&self.ring).clone()
    }

    /// Another ring is in force.
    pub fn set_ring(&self, ring: Arc<Ring>) {
        *lock(&self.ring) = ring;
    }

    /// One request.
    pub async fn ask(&self, via: usize, class: usize, key: &str, within: Duration) -> Exchange {
        let (address, path) = (self.addresses[via].as_str(), CLASSES[class].path);
        let order = Order { address, path, token: files::TENANTS[0].1, key, body: BODY };
        self.connections.ask(via, &order, within).await
    }

    /// The histories so far.
    pub fn lives(&self) -> MutexGuard<'_, Vec<KeyLife>> {
        lock(&self.lives)
    }

    /// How many keys were not started because too many had no end yet.
    pub fn held_back(&self) -> u64 {
        self.held_back.load(Relaxed)
    }

    fn deadline(&self) -> Option<Instant> {
        match *self.phase.borrow() {
            Phase::Loading => None,
            Phase::Ending(deadline) => Some(deadline),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The clients at work.
pub struct Load {
    field: Arc<Field>,
    clients: Vec<JoinHandle<()>>,
}

impl Load {
    /// Starts clients in all regions that begin `rate` keys per second together.
    pub fn start(field: &Arc<Field>, rate: f64) -> Load {
        let regions = field.clients;
        let period = Duration::from_secs_f64(regions as f64 / rate);
        let client = |region: usize| {
            let first = Instant::now() + period.mul_f64(region as f64 / regions as f64);
            tokio::spawn(client(field.clone(), region, first, period))
        };
        Load { field: field.clone(), clients: (0..regions).map(client).collect() }
    }

    /// Starts no more keys, and returns when every key has its end: the upstream's answer, or a last try after `within`.
    pub async fn end(self, within: Duration) -> Result<()> {
        self.field.phase.send_replace(Phase::Ending(Instant::now() + within));
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
            _ = ending.wait_for(|phase| *phase != Phase::Loading) => break,
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
    let home = field.order(&key).first().copied().unwrap_or(region);
    let class = number % CLASSES.len();
    let mut life =
        KeyLife { key, class, home, exchanges: Vec::new(), end: End::Without("nothing".to_owned()) };
    // Some clients send twice at once: an impatient user, or a proxy that hedges.
    if number.is_multiple_of(7) {
        let other = (region + 1) % field.clients;
        let (one, two) = tokio::join!(
            field.ask(region, class, &life.key, PATIENCE),
            field.ask(other, class, &life.key, PATIENCE)
        );
        life.exchanges.extend([one, two]);
    } else {
        life.exchanges.push(field.ask(region, class, &life.key, PATIENCE).await);
    }
    bring_to_end(&field, &mut life, region, number).await;
    // Some lose their answer and ask again elsewhere, though all was well.
    if life.end == End::Definite && number.is_multiple_of(3) {
        let other = (region + 1 + number % 2) % field.clients;
        life.exchanges.push(field.ask(other, class, &life.key, PATIENCE).await);
    }
    field.lives().push(life);
}

/// Retries with the same key, each time through the next region, until there is an answer or the deadline of the ending.
async fn bring_to_end(field: &Field, life: &mut KeyLife, region: usize, number: usize) {
    let (mut via, mut pause, mut parked) = (region, PAUSES.0, 0);
    loop {
        if life.exchanges.iter().any(|exchange| exchange.told.success().is_some()) {
            life.end = End::Definite;
            return;
        }
        let Some(last) = life.exchanges.last() else { return };
        let told = last.told.clone();
        if !may_retry(&told) {
            life.end = End::Without(told.word());
            return;
        }
        let doubtful = told.is(409, "outcome-unknown") || told.is(504, "outcome-unknown");
        if let Some(deadline) = field.deadline() {
            parked += u32::from(doubtful && CLASSES[life.class].recovery == Recovery::Park);
            if parked >= PARKED_ENOUGH || Instant::now() > deadline {
                life.end = if doubtful { End::InDoubt } else { End::Without(told.word()) };
                return;
            }
        }
        wait::pause(before_retry(&told, pause, number)).await;
        pause = (pause * 3 / 2).min(PAUSES.1);
        via = (via + 1) % field.clients;
        let again = field.ask(via, life.class, &life.key, PATIENCE).await;
        life.exchanges.push(again);
    }
}

/// What the answer asks for, at most two seconds, and spread: clients that were cut off together must not come back together.
fn before_retry(told: &Told, pause: Duration, number: usize) -> Duration {
    let asked = match told {
        Told::Answer(answer) => answer.retry_after.parse().ok().map(Duration::from_secs),
        Told::Nobody | Told::Broke | Told::Late => None,
    };
    let spread = 0.8 + 0.05 * (number % 9) as f64;
    asked.unwrap_or(pause).clamp(PAUSES.0, PAUSES.1).mul_f64(spread)
}

/// Every other refusal says that the same request would be refused again.
fn may_retry(told: &Told) -> bool {
    match told {
        Told::Answer(answer) => answer.status >= 500 || answer.status == 409 || answer.status == 429,
        Told::Nobody | Told::Broke | Told::Late => true,
    }
}

/// Brings keys to their end that were asked for once and have no answer, as their clients would, and adds their histories.
pub async fn bring_all(field: &Arc<Field>, lives: Vec<KeyLife>, within: Duration) {
    let mut bringing = JoinSet::new();
    for (number, mut life) in lives.into_iter().enumerate() {
        let field = field.clone();
        if bringing.len() >= AT_ONCE {
            bringing.join_next().await;
        }
        // Each has as much time as the first, however many there are.
        field.phase.send_replace(Phase::Ending(Instant::now() + within));
        bringing.spawn(async move {
            let via = life.exchanges.last().map_or(0, |last| last.via);
            bring_to_end(&field, &mut life, via, number).await;
            field.lives().push(life);
        });
    }
    while bringing.join_next().await.is_some() {}
}

/// Asks again for keys that had their answer: the ones that needed more than one try, and as many others. What is told is added to their
/// histories.
pub async fn ask_again(field: &Arc<Field>, most: usize) {
    let mut keys: Vec<(usize, String, usize, bool)> = {
        let lives = field.lives();
        let answered = lives.iter().enumerate().filter(|(_, life)| life.end == End::Definite);
        answered.map(|(at, life)| (at, life.key.clone(), life.class, life.exchanges.len() < 3)).collect()
    };
    // Whoever had trouble first.
    keys.sort_by_key(|(at, _, _, smooth)| (*smooth, *at));
    keys.truncate(most);
    let mut asking = JoinSet::new();
    for (number, (at, key, class, _)) in keys.into_iter().enumerate() {
        let field = field.clone();
        if asking.len() >= AT_ONCE {
            asking.join_next().await;
        }
        asking.spawn(async move {
            let again = field.ask(number % field.clients, class, &key, PATIENCE).await;
            if let Some(life) = field.lives().get_mut(at) {
                life.exchanges.push(again);
            }
        });
    }
    while asking.join_next().await.is_some() {}
}
