//! Three real regions under load while their gateways and endpoints of their upstreams are killed
//! at random: no key ever has two effects or two answers. Half of the 1,000 keys are on a route
//! that probes, half on one that parks. The choices come from a printed seed.

use crate::support::*;
use onceway_client::NotConnected;
use std::sync::atomic::AtomicU32;
use tokio::sync::{Mutex, Semaphore};

const KEYS: u64 = 1_000;
const ATTEMPTS: u64 = 5;
const AT_ONCE: usize = 48;
const BETWEEN_KILLS: u32 = 60;

/// Policies as short as the configuration allows, so that doubts are over soon.
fn routes() -> String {
    let short = "upstream = \"provider\"\nkey = \"required\"\nhold = \"6s\"\nwait = \"500ms\"\nupstream_timeout = \"1s\"\n";
    let probes = "recovery = \"probe\"\nprobe = \"/onceway/effects\"";
    route("charges", &format!("{short}{probes}")) + &route("payouts", &format!("{short}recovery = \"park\""))
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Received {
    /// A final answer: this one, for ever.
    Final {
        status: u16,
        body: bytes::Bytes,
        replayed: bool,
    },
    Unknown,
    /// The key is parked, or cannot be cleared up now.
    Parked,
    /// Another attempt runs, no region can run it now, or the upstream said that nothing happened.
    Later,
    Cut,
}

impl Received {
    fn of(answer: anyhow::Result<Answer>, what: &str) -> Received {
        let Ok(answer) = answer else { return Received::Cut };
        let problem = answer.json()["code"].as_str().unwrap_or_default().to_owned();
        match (answer.status.as_u16(), problem.as_str()) {
            (status @ (201 | 402), "") => {
                let replayed = answer.header("idempotent-replayed") == "true";
                Received::Final { status, body: answer.body, replayed }
            }
            (409, "outcome-unknown") => Received::Parked,
            (409, "in-progress") => Received::Later,
            (500 | 504, "outcome-unknown") => Received::Unknown,
            (429 | 503, _) => Received::Later,
            (status, _) => panic!("{what}: nobody should be told {status}: {}", answer.text()),
        }
    }
}

struct Tried {
    path: &'static str,
    key: String,
    received: Vec<Received>,
}

impl Tried {
    fn probes(&self) -> bool {
        self.path == "/v1/charges"
    }

    fn is_over(&self) -> bool {
        self.received.iter().any(|received| matches!(received, Received::Final { .. }))
            || (!self.probes() && self.received.last() == Some(&Received::Parked))
    }
}

struct Storm {
    three: Deployment,
    connections: Connections,
    seed: u64,
    ended: AtomicU32,
    kills: AtomicU32,
}

impl Storm {
    fn behave(dice: &mut Dice) -> String {
        let delay = 20 + dice.below(300);
        match dice.below(100) {
            0..45 => String::new(),
            45..65 => format!("slow={delay}ms"),
            65..78 => "drop-answer".to_owned(),
            78..84 => format!("slow={delay}ms, drop-answer"),
            84..91 => "status=500".to_owned(),
            91..96 => "status=429".to_owned(),
            _ => format!("slow={delay}ms, status=402"),
        }
    }

    async fn attempt(&self, path: &str, key: &str, region: usize, behave: &str) -> Received {
        let tried = AtomicUsize::new(region);
        let send = async || {
            let region = &self.three.regions[tried.fetch_add(1, SeqCst) % 3];
            let ask = post(&region.public(), path, key, BODY).with("Demo-Behave", behave);
            match self.connections.send(ask, PATIENCE).await {
                // As a client's resolver does, the next region is asked: nothing was sent.
                Err(error) if error.is::<NotConnected>() => Ok(None),
                answer => Ok(Some(Received::of(answer, &format!("{key} at {}", region.name)))),
            }
        };
        let received = wait::for_some("a region to take a connection", BOUND, send).await.unwrap();
        self.ended.fetch_add(1, SeqCst);
        received
    }

    /// All attempts of one key: at once, or one after the other like a client's retries.
    async fn key(self: Arc<Self>, number: u64) -> Tried {
        let mut dice = Dice::of(self.seed, number);
        let path = ["/v1/charges", "/v1/payouts"][usize::from(!number.is_multiple_of(2))];
        let key = format!("storm-{number}");
        let at_once = dice.below(2) == 0;
        let mut received = Vec::new();
        let mut running = JoinSet::new();
        for _ in 0..ATTEMPTS {
            let (region, behave) = (dice.below(3), Self::behave(&mut dice));
            let (storm, key) = (self.clone(), key.clone());
            running.spawn(async move { storm.attempt(path, &key, region, &behave).await });
            while !at_once && let Some(ended) = running.join_next().await {
                received.push(ended.unwrap());
            }
        }
        received.extend(running.join_all().await);
        Tried { path, key, received }
    }

    /// Kills gateways, one or two at a time, for as long as the load lasts. Mends all at the end.
    async fn chaos(&self) {
        let mut dice = Dice::of(self.seed, u64::MAX);
        let all = u32::try_from(KEYS * ATTEMPTS).unwrap();
        while self.ended.load(SeqCst) < all {
            let until = self.ended.load(SeqCst) + u32::try_from(dice.below(BETWEEN_KILLS as usize)).unwrap();
            self.progress(until.min(all)).await;
            let first = dice.below(3);
            let mut killed = vec![first];
            if dice.below(4) == 0 {
                killed.push((first + 1 + dice.below(2)) % 3);
            }
            // One of its two endpoints, behind TLS, of a region that may live.
            let endpoint = &self.three.endpoints[dice.below(3)][dice.below(2)];
            endpoint.kill().await;
            for number in &killed {
                self.three.regions[*number].act(Action::Kill, Part::Gateway).await.unwrap();
                self.kills.fetch_add(1, SeqCst);
            }
            self.progress((self.ended.load(SeqCst) + BETWEEN_KILLS).min(all)).await;
            endpoint.open().await.unwrap();
            for number in killed {
                self.three.regions[number].act(Action::Start, Part::Gateway).await.unwrap();
            }
        }
    }

    /// Not for long: a killed gateway must not stay away until its callers gave up.
    async fn progress(&self, wanted: u32) {
        let ended = async || Ok((self.ended.load(SeqCst) >= wanted).then_some(()));
        let _in_vain = wait::for_some("the load to go on", Duration::from_secs(2), ended).await;
    }

    /// Asks once more for the keys for which `region` names one, with a well-behaved upstream.
    async fn ask_again(
        self: &Arc<Self>,
        tried: &mut [Tried],
        region: impl Fn(usize, &Tried) -> Option<usize>,
    ) {
        let slots = Arc::new(Semaphore::new(AT_ONCE));
        let mut asking = JoinSet::new();
        for (at, one) in tried.iter().enumerate() {
            let Some(region) = region(at, one) else { continue };
            let (storm, path, key, slots) = (self.clone(), one.path, one.key.clone(), slots.clone());
            asking.spawn(async move {
                let _slot = slots.acquire_owned().await.unwrap();
                (at, storm.attempt(path, &key, region, "").await)
            });
        }
        for (at, received) in asking.join_all().await {
            tried[at].received.push(received);
        }
    }

    /// Repeats every key that is not over yet until all are. Then asks everywhere for all of them.
    async fn clear_up(self: &Arc<Self>, tried: &mut [Tried]) {
        let (round, all) = (AtomicUsize::new(0), Mutex::new(&mut *tried));
        let again = async || {
            let (mut tried, number) = (all.lock().await, round.fetch_add(1, SeqCst));
            self.ask_again(&mut tried, |at, one| (!one.is_over()).then_some((at + number) % 3)).await;
            Ok(tried.iter().all(Tried::is_over).then_some(()))
        };
        wait::for_some("every key to be settled or parked", BOUND, again).await.unwrap();
        for region in 0..3 {
            let before: Vec<usize> = tried.iter().map(|one| one.received.len()).collect();
            // Told how the key stands, not only that the gateway cannot say now.
            let is_answered = |at: usize, one: &Tried| {
                let last = one.received[before[at]..].last();
                matches!(last, Some(Received::Final { .. } | Received::Parked))
            };
            let all = Mutex::new(&mut *tried);
            let again = async || {
                let mut tried = all.lock().await;
                self.ask_again(&mut tried, |at, one| (!is_answered(at, one)).then_some(region)).await;
                Ok(tried.iter().enumerate().all(|(at, one)| is_answered(at, one)).then_some(()))
            };
            wait::for_some("every region to know every key", BOUND, again).await.unwrap();
        }
    }
}

/// Compares the results of one key with the ledger. Returns its final status; `None` if parked.
fn judge(one: &Tried, effects: u64) -> Option<u16> {
    let Tried { key, received, .. } = one;
    assert!(effects <= 1, "{key} had {effects} effects: {received:?}");
    let finals = received.iter().filter_map(|received| match received {
        Received::Final { status, body, replayed } => Some(((*status, body), *replayed)),
        Received::Unknown | Received::Parked | Received::Later | Received::Cut => None,
    });
    let (finals, replays): (Vec<_>, Vec<_>) = finals.unzip();
    let Some(first) = finals.first() else {
        assert!(!one.probes(), "{key} is on a route that probes and was never answered: {received:?}");
        return None;
    };
    assert!(finals.iter().all(|other| other == first), "{key} had several answers: {received:?}");
    assert_eq!(effects, u64::from(first.0 == 201), "{key} was told {}: {received:?}", first.0);
    let firsts = replays.into_iter().filter(|replayed| !replayed).count();
    assert!(firsts <= 1, "{key} was run {firsts} times for an answer: {received:?}");
    let last = received.last().expect("an attempt");
    assert!(matches!(last, Received::Final { replayed: true, .. }), "{key} was settled, then told {last:?}");
    Some(first.0)
}

fn count(tried: &[Tried], wanted: impl Fn(&Received) -> bool) -> usize {
    tried.iter().flat_map(|one| &one.received).filter(|received| wanted(received)).count()
}

#[test]
fn killed_gateways_leave_one_effect_and_answer_per_key() {
    run(async {
        let _alone = alone().await;
        let seed = seed();
        let three = deployment_with(Duration::from_millis(10), Some(routes()), FAILOVER).await;
        let storm = Arc::new(Storm {
            three,
            connections: Connections::default(),
            seed,
            ended: AtomicU32::new(0),
            kills: AtomicU32::new(0),
        });
        let slots = Arc::new(Semaphore::new(AT_ONCE));
        let mut load = JoinSet::new();
        for number in 0..KEYS {
            let (storm, slots) = (storm.clone(), slots.clone());
            load.spawn(async move {
                let _slot = slots.acquire_owned().await.unwrap();
                storm.key(number).await
            });
        }
        let ((), mut tried) = tokio::join!(storm.chaos(), load.join_all());
        all_serve(&storm.three).await;
        storm.clear_up(&mut tried).await;

        let booked: BTreeMap<_, _> =
            storm.three.ledger.totals(None).into_iter().map(|total| (total.key, total.effects)).collect();
        let ends = tried.iter().map(|one| judge(one, booked.get(&one.key).copied().unwrap_or_default()));
        let settled = ends.flatten().count();
        let parked = tried.len() - settled;
        let kills = storm.kills.load(SeqCst);
        let replays = count(&tried, |received| matches!(received, Received::Final { replayed: true, .. }));
        let doubts = count(&tried, |received| matches!(received, Received::Unknown | Received::Parked));
        let cut = count(&tried, |received| *received == Received::Cut);
        let seen = format!(
            "{kills} kills, {settled} settled, {parked} parked, {replays} replays, {doubts} doubts, {cut} cut off"
        );
        println!("{seen}");
        assert_eq!(tried.len() as u64, KEYS);
        assert!(kills >= 10 && cut >= 10, "hardly a storm: {seen}");
        assert!(settled >= 600 && parked >= 20, "hardly a mix: {seen}");
        assert!(replays >= 2_000 && doubts >= 100, "hardly a doubt: {seen}");
    });
}

/// The choices of one run, all from its seed (splitmix64).
pub struct Dice(u64);

impl Dice {
    /// The choices of one part of a run, which do not depend on the other parts.
    pub fn of(seed: u64, part: u64) -> Dice {
        let mut dice = Dice(seed ^ part.wrapping_mul(0xd1b5_4a32_d192_ed03));
        dice.roll();
        dice
    }

    pub fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.roll() % bound as u64).expect("below a usize")
    }
}

/// The seed of this run: `ONCEWAY_SEED`, or a fresh one. It is printed.
pub fn seed() -> u64 {
    let asked =
        std::env::var("ONCEWAY_SEED").ok().map(|text| text.parse().expect("ONCEWAY_SEED is a number"));
    let seed = asked.unwrap_or_else(|| u64::from(std::process::id()) << 20 ^ 0x5eed);
    println!("ONCEWAY_SEED={seed}");
    seed
}
