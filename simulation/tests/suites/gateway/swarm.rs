//! Random requests under random faults, from a seed; afterwards everything is healed and the
//! invariants are checked.
//!
//! A failing seed prints itself: `ONCEWAY_SEED=<seed> cargo test --test simulated
//! gateway::swarm` plays it alone. It must draw from its own dice only, so that a seed replays
//! whatever the gateways draw.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use onceway::protocol::job::JobState;
use onceway::protocol::region::RegionName;
use simulation::cluster::StoreMode;
use simulation::dice::SimDice;
use simulation::peers::LinkMode;
use simulation::upstream::UpstreamMode;
use tokio::time::{Instant, sleep};

use super::bench::{
    Bench, HOLD, ONE_WAY, SETTLE_TIME, Told, UPSTREAM, ask, id, key_of, ms, play, region, regions, until,
    view,
};

/// The number of seeds of a run.
const SEEDS: u64 = 60;
/// The number of steps of a seed.
const STEPS: usize = 60;
const PATHS: [&str; 4] = ["probe", "park", "rerun", "later"];
const OTHER: &str = "{\"other\":1}";

/// One keyed request and its answer.
struct Entry {
    path: &'static str,
    key: String,
    other: bool,
    told: Told,
}

/// The answers to clients, in order.
#[derive(Default)]
struct Log {
    entries: Vec<Entry>,
    text: String,
}

struct Swarm {
    seed: u64,
    dice: SimDice,
    bench: Arc<Bench>,
    keys: Vec<(&'static str, String)>,
    log: Arc<Mutex<Log>>,
    begun: Instant,
}

impl Swarm {
    fn pick(&self, count: usize) -> usize {
        usize::try_from(self.dice.bits() % count as u64).unwrap()
    }

    fn region(&self) -> RegionName {
        regions()[self.pick(3)].clone()
    }

    async fn start(seed: u64) -> Self {
        let bench = Bench::start(seed).await;
        let owned =
            |path: &'static str| regions().map(|owner| (path, key_of(&owner, &format!("{path}-{owner}"))));
        let keys = PATHS.into_iter().flat_map(owned).collect();
        // A stream that no process of the world draws from.
        let dice = SimDice::new(seed, u64::MAX);
        Self { seed, dice, bench, keys, log: Arc::default(), begun: Instant::now() }
    }

    /// Begins a request in a random region, without waiting for its end.
    fn request(&self) -> tokio::task::JoinHandle<()> {
        let (path, key) = self.keys[self.pick(self.keys.len())].clone();
        let (at, other) = (self.region(), self.pick(12) == 0);
        let (bench, log, begun) = (self.bench.clone(), self.log.clone(), self.begun);
        tokio::spawn(async move {
            let body = if other { OTHER } else { "{}" };
            let told = ask(&bench.gateway(&at), &format!("/{path}"), &key, body).await;
            let mut log = log.lock().unwrap();
            let at = format!("{:?} {at} {key} {other}", begun.elapsed());
            writeln!(log.text, "{at}: {} {} {} {:?}", told.status, told.code, told.replayed, told.body)
                .unwrap();
            log.entries.push(Entry { path, key, other, told });
        })
    }

    /// One random fault, or its end.
    fn fault(&self) {
        let (at, other) = (self.region(), self.region());
        match self.pick(4) {
            0 => {
                let bound = ms(50 + self.dice.bits() % 500);
                let modes = [
                    StoreMode::Up,
                    StoreMode::Up,
                    StoreMode::Refuse,
                    StoreMode::Stall(bound),
                    StoreMode::LoseReplies(bound),
                ];
                self.bench.store(&at, modes[self.pick(5)]);
                self.bench.world.cluster.set_latency(&at, ms([2, 2, 20, 400][self.pick(4)]));
            }
            1 if at != other => {
                use LinkMode::{LoseReply, LoseRequest, Refuse, Silent, Up};
                let mode = [Up, Up, Refuse, LoseRequest, LoseReply, Silent][self.pick(6)];
                self.bench.world.network.set_link(&at, &other, mode, ONE_WAY);
                self.bench.world.cluster.hold(&at, &other, self.pick(3) == 0);
            }
            1 | 2 => {
                let busy =
                    UpstreamMode::Answer { after: ms(30), status: 429, body: Bytes::new(), effect: false };
                let modes = [
                    UpstreamMode::Receipt { after: ms(50) },
                    UpstreamMode::Receipt { after: ms(700) },
                    UpstreamMode::Receipt { after: UPSTREAM + ms(500) },
                    UpstreamMode::Refuse,
                    UpstreamMode::EffectThenDrop,
                    UpstreamMode::DropBeforeEffect,
                    UpstreamMode::Hang,
                    UpstreamMode::HangInBody,
                    UpstreamMode::EffectThenFail { status: 500 },
                    busy,
                ];
                self.bench.upstream(&at, modes[self.pick(10)].clone());
            }
            _ => self.bench.world.cluster.restart(&at),
        }
    }

    async fn heal(&self) {
        for at in regions() {
            self.bench.store(&at, StoreMode::Up);
            self.bench.world.cluster.set_latency(&at, ms(2));
            self.bench.upstream(&at, UpstreamMode::Receipt { after: ms(50) });
            self.bench.links(&at, LinkMode::Up);
            for other in regions().iter().filter(|other| **other != at) {
                self.bench.world.cluster.hold(&at, other, false);
            }
        }
        self.bench.all_serve().await;
    }

    /// Plays all steps, heals, and asks every key once more until its answer is final or it is
    /// parked.
    async fn play(&self) {
        let mut running = Vec::new();
        for _ in 0..STEPS {
            match self.pick(5) {
                0 => self.fault(),
                _ => running.push(self.request()),
            }
            sleep(ms([0, 1, 40, 300, 2_000][self.pick(5)])).await;
        }
        for request in running {
            request.await.unwrap();
        }
        self.heal().await;
        sleep(HOLD + SETTLE_TIME).await;
        self.accepted_ended().await;
        for (path, key) in &self.keys {
            let mut last = None;
            until(&format!("seed {}: an end of {key}", self.seed), HOLD * 4, async || {
                let told = self.bench.send(&region("us"), &format!("/{path}"), key).await;
                let parked = *path != "probe" && told.said() == (409, "outcome-unknown");
                // An accepted request is never left: its job ends it, or it waits for an operator.
                let letter = *path == "later" && told.said() == (409, "dead-letter");
                let ended = told.status == 201 || parked || letter || told.said() == (422, "key-reused");
                last = Some(told);
                ended
            })
            .await;
            let told = last.unwrap();
            let other = told.status == 422;
            self.log.lock().unwrap().entries.push(Entry { path, key: key.clone(), other, told });
        }
    }

    /// Checks that every accepted request is settled or a dead letter in the end, without its
    /// client.
    async fn accepted_ended(&self) {
        let accepted: BTreeSet<String> = {
            let log = self.log.lock().unwrap();
            log.entries
                .iter()
                .filter(|entry| entry.told.status == 202)
                .map(|entry| entry.key.clone())
                .collect()
        };
        for key in &accepted {
            let owner = view().owner(&id(key)).unwrap().clone();
            until(
                &format!("seed {}: an end of {key}, without its client", self.seed),
                HOLD * 8,
                async || {
                    let dead = self.bench.gateway(&owner).jobs(Some(JobState::Dead)).await.unwrap();
                    self.bench.state(&owner, key).await == "settled" || dead.iter().any(|job| job.key == *key)
                },
            )
            .await;
        }
    }

    fn check(&self) {
        let (seed, log) = (self.seed, self.log.lock().unwrap());
        let mut answers: BTreeMap<&str, BTreeSet<&Bytes>> = BTreeMap::new();
        for Entry { path, key, told, .. } in &log.entries {
            let effects = self.bench.effects(key);
            if *path != "rerun" {
                assert!(effects.len() <= 1, "seed {seed}: {key} took effect {} times", effects.len());
            }
            if (200..300).contains(&told.status) && told.status != 202 {
                answers.entry(key).or_default().insert(&told.body);
                let known = effects.iter().any(|effect| effect.body == told.body);
                assert!(known, "seed {seed}: {key} was answered with what no upstream said: {told:?}");
            }
        }
        for (key, bodies) in answers {
            assert_eq!(bodies.len(), 1, "seed {seed}: {key} has two answers: {bodies:?}");
        }
        // All sends under a key are one request: the first that claimed it.
        let mut sent: BTreeMap<_, BTreeSet<Bytes>> = BTreeMap::new();
        for at in regions() {
            for arrival in self.bench.world.upstreams.arrivals(&at) {
                let (key, _, _) = arrival.attempt.expect("only keyed requests are sent here");
                sent.entry(key).or_default().insert(arrival.body);
            }
        }
        for (path, key) in &self.keys {
            let bodies = sent.get(&id(key)).map_or(0, BTreeSet::len);
            assert!(bodies <= 1, "seed {seed}: two requests were sent under {path} {key}");
        }
    }
}

/// Plays a seed and returns its log.
fn run(seed: u64) -> (String, usize) {
    play(async {
        let swarm = Swarm::start(seed).await;
        swarm.play().await;
        swarm.check();
        let log = swarm.log.lock().unwrap();
        let answered = log.entries.iter().filter(|entry| entry.told.status == 201 && !entry.other).count();
        (log.text.clone(), answered)
    })
}

#[test]
fn random_faults_never_make_a_key_take_effect_twice() {
    let seeds = match std::env::var("ONCEWAY_SEED") {
        Ok(seed) => vec![seed.parse().expect("ONCEWAY_SEED is a number")],
        Err(_) => (0..SEEDS).collect::<Vec<u64>>(),
    };
    let mut answered = 0;
    for seed in seeds.iter().copied() {
        match std::panic::catch_unwind(|| run(seed)) {
            Ok((_, count)) => answered += count,
            Err(cause) => {
                eprintln!("rerun with: ONCEWAY_SEED={seed} cargo test --test simulated gateway::swarm");
                std::panic::resume_unwind(cause);
            }
        }
    }
    assert!(answered > seeds.len() * 12, "faults must leave room for answers: {answered} in {}", seeds.len());
}

#[test]
fn a_seed_replays_to_the_byte() {
    for seed in [3, 17, 101] {
        let (first, _) = run(seed);
        assert_eq!(first, run(seed).0, "seed {seed}");
        assert!(first.lines().count() > STEPS / 2, "seed {seed} must say something: {first}");
        assert_ne!(first, run(seed + 1).0, "another seed must say something else");
    }
}
