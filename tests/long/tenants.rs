//! Two tenants with equal keys, under load over three regions, for a minute: no tenant ever gets an
//! answer of the other. Every answer shows its request, so one that crossed over is seen at once.
//! `ONCEWAY_TENANTS_SECONDS` sets another length.

use crate::storm::{Dice, seed};
use crate::support::*;

const CALLERS: u64 = 24;
/// The number of fresh keys, and the approximate number of answers after which one is old.
const FRESH: u64 = 12;
const PER_KEY: u64 = 25;

#[derive(Clone, Debug, PartialEq, Eq)]
struct Known {
    body: Bytes,
    /// The request that got the first answer.
    original: String,
}

/// The name of a record: a tenant, by its place in the demo's list, and the number of a key.
type Id = (usize, u64);

#[derive(Default)]
struct Tally {
    settled: AtomicU64,
    replayed: AtomicU64,
    trouble: AtomicU64,
}

struct Load {
    three: Deployment,
    connections: Connections,
    ends: Instant,
    seed: u64,
    ended: AtomicU64,
    known: Mutex<BTreeMap<Id, Known>>,
    tallies: [Tally; 2],
}

fn key(number: u64) -> String {
    format!("equal-{number}")
}

/// True if this tenant uses the key. Four of five are used by both, every fifth by one of them.
fn uses(tenant: usize, number: u64) -> bool {
    !number.is_multiple_of(5) || number / 5 % 2 == tenant as u64
}

/// The request of a tenant under a key: no two of them are equal.
fn body((tenant, number): Id) -> String {
    let (amount, currency) = ((tenant as u64 + 1) * 1_000_000 + number, ["usd", "eur"][tenant]);
    format!(r#"{{"amount":{amount},"currency":"{currency}"}}"#)
}

fn request(region: &Region, (tenant, number): Id, body: String) -> Ask {
    let path = ["/v1/charges", "/v1/payouts", "/v1/emails"][number as usize % 3];
    Ask::post(format!("{}{path}", region.public()), body)
        .with("Authorization", format!("Bearer {}", TENANTS[tenant].1))
        .with("Idempotency-Key", key(number))
}

impl Load {
    async fn send(&self, ask: Ask) -> Answer {
        self.connections.send(ask, PATIENCE).await.expect("an answer")
    }

    async fn caller(self: Arc<Self>, caller: u64) {
        let mut dice = Dice::of(self.seed, caller);
        while Instant::now() < self.ends {
            let fresh = self.ended.load(SeqCst) / PER_KEY + FRESH;
            let number =
                if dice.below(5) == 0 { dice.roll() % fresh } else { fresh - 1 - dice.roll() % FRESH };
            let (id, region) = ((dice.below(2), number), &self.three.regions[dice.below(3)]);
            if uses(id.0, number) {
                self.charge(id, region, ["slow=40ms", "", ""][dice.below(3)]).await;
            }
            self.ended.fetch_add(1, SeqCst);
        }
    }

    /// Sends this tenant's request under this key. The answer is its own, or asks to come back.
    async fn charge(&self, id: Id, region: &Region, behave: &str) {
        let answer = self.send(request(region, id, body(id)).with("Demo-Behave", behave)).await;
        let tally = &self.tallies[id.0];
        let what = format!("{id:?} at {}: {} {:?}", region.name, answer.status, answer.text());
        match answer.status.as_u16() {
            201 => {
                let (replayed, asked) = (self.answered(id, &answer, &what), answer.header("idempotency-key"));
                assert_eq!(asked.trim_matches('"'), key(id.1));
                if replayed { &tally.replayed } else { &tally.settled }.fetch_add(1, SeqCst);
            }
            409 if code(&answer) == "in-progress" => {}
            503 | 504 => drop(tally.trouble.fetch_add(1, SeqCst)),
            _ => panic!("{what}"),
        }
    }

    /// Compares an answer with this tenant's request and earlier ones. Returns true for a replay.
    fn answered(&self, id: Id, answer: &Answer, what: &str) -> bool {
        let (got, asked) = (answer.json(), serde_json::from_str::<Value>(&body(id)).unwrap());
        for field in ["amount", "currency"] {
            assert_eq!(got[field], asked[field], "{what}");
        }
        let replayed = answer.header("idempotent-replayed") == "true";
        let original = answer.header(if replayed { "original-request-id" } else { "onceway-request-id" });
        assert!(!original.is_empty(), "{what}");
        let now = Known { body: answer.body.clone(), original: original.to_owned() };
        let mut known = self.known.lock().unwrap();
        assert_eq!(known.entry(id).or_insert_with(|| now.clone()), &now, "{what}");
        replayed
    }
}

async fn sum(three: &Deployment, name: &str, label: &str) -> u64 {
    let mut all = 0.0;
    for region in &three.regions {
        let page = metrics(region).await;
        let series = page.lines().filter_map(|line| line.strip_prefix(name)?.rsplit_once(' '));
        let wanted = series.filter(|(labels, _)| labels.contains(label));
        all += wanted.map(|(_, value)| value.parse::<f64>().expect("a number")).sum::<f64>();
    }
    all as u64
}

/// Each tenant gets its own answer everywhere, and meets its own record.
async fn ask_everywhere(load: &Load) {
    let known = load.known.lock().unwrap().clone();
    let mut dice = Dice::of(load.seed, u64::MAX);
    for (id, known) in known.iter() {
        if dice.below(4) > 0 {
            continue;
        }
        let region = &load.three.regions[dice.below(3)];
        until("the answer to be replayed", async || {
            let answer = load.send(request(region, *id, body(*id))).await;
            let replayed = answer.status == 201 && load.answered(*id, &answer, "at the end");
            assert!(replayed || [503, 504].contains(&answer.status.as_u16()), "{id:?}: {}", answer.text());
            replayed
        })
        .await;
        let mut seen = BTreeSet::new();
        for (tenant, _) in TENANTS {
            let url = format!("{}/v1/keys/{tenant}/{}", region.admin(), key(id.1));
            for row in ask(Ask::get(url)).await.json()["rows"].as_array().expect("rows") {
                let is_new = seen.insert(row["fingerprint"].to_string());
                assert!(is_new, "two tenants share a fingerprint: {known:?}");
            }
        }
    }
}

/// Each record has one effect, booked for its tenant, and no effect answers two records.
fn judge(load: &Load) {
    let known = load.known.lock().unwrap();
    let mut booked = BTreeMap::new();
    for total in load.three.ledger.totals(None) {
        assert_eq!(total.effects, 1, "{total:?}");
        booked.insert((total.tenant, total.key), total.effects);
    }
    let mut effects = BTreeSet::new();
    for ((tenant, number), known) in known.iter() {
        assert!(booked.contains_key(&(TENANTS[*tenant].0.to_owned(), key(*number))), "{tenant} {number}");
        let answer: Value = serde_json::from_slice(&known.body).expect("JSON");
        let effect = answer["id"].as_str().and_then(|id| id.split('_').nth(1)).expect("an effect").to_owned();
        assert!(effects.insert(effect), "one effect answers two records: {known:?}");
    }
    let used_by_both =
        known.keys().filter(|(tenant, number)| *tenant == 0 && known.contains_key(&(1, *number)));
    assert!(used_by_both.count() >= 20, "hardly an equal key");
}

/// No region is lost here: a lease of three seconds ends on a busy machine.
const PATIENT: &str = "\n[failover]\nlease = \"15s\"\nfloor = \"1s\"\nstable_for = \"100ms\"\n";

#[test]
fn two_tenants_with_equal_keys_never_see_each_other() {
    run(async {
        let _alone = alone().await;
        let seed = seed();
        let asked = std::env::var("ONCEWAY_TENANTS_SECONDS").ok();
        let seconds = asked.map_or(60, |text| text.parse().expect("ONCEWAY_TENANTS_SECONDS is a number"));
        let three = deployment_with(Duration::from_millis(10), None, PATIENT).await;
        let load = Arc::new(Load {
            three,
            connections: Connections::default(),
            ends: Instant::now() + Duration::from_secs(seconds),
            seed,
            ended: AtomicU64::new(0),
            known: Mutex::default(),
            tallies: Default::default(),
        });
        let callers: JoinSet<_> = (0..CALLERS).map(|caller| load.clone().caller(caller)).collect();
        callers.join_all().await;
        let attached = sum(&load.three, "onceway_attached_total", "result=\"replayed\"").await;
        let copied = sum(&load.three, "onceway_local_replays_total", "").await;
        ask_everywhere(&load).await;
        judge(&load);
        let seen = format!("{attached} duplicates attached, {copied} replayed from copies");
        assert!(attached >= 10 && copied >= 20, "{seen}");
        for (tally, (tenant, _)) in load.tallies.iter().zip(TENANTS) {
            let count = |counter: &AtomicU64| counter.load(SeqCst);
            let [settled, replayed, trouble] = [&tally.settled, &tally.replayed, &tally.trouble].map(count);
            let seen = format!("{tenant}: {settled} settled, {replayed} replayed, {trouble} in trouble");
            println!("{seen}");
            assert!(settled >= 30 && replayed >= 200, "hardly a load: {seen}");
            assert!(trouble * 50 <= settled + replayed, "nothing was broken: {seen}");
        }
    });
}
