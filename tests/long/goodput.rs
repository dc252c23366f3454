//! Retry storms and the ten seconds after each: goodput returns to its former rate, and no key
//! takes effect twice. Steady clients start fresh keys at a fixed rate. Many others repeat keys at
//! once after each refusal, until the gateway is full. The first storm is of another tenant, which
//! may not take the steady ones' places; the second of their own.

use crate::support::*;

/// Fresh keys per second of the steady clients.
const RATE: u32 = 10;
/// The gateway's limit of requests. Its last eighth is two seconds of the steady clients.
const REQUESTS: &str = "[listen.limits]\nrequests = 160\n";
/// The number of a storm's clients, each with one request at a time.
const STORMING: usize = 240;
/// The number of requests in a storm, and its length.
const STORM: usize = 2_000;
const STORM_FOR: Duration = Duration::from_secs(3);
/// The time limit for goodput to return, and the share that must return.
const BACK_WITHIN: Duration = Duration::from_secs(10);
const BACK_TO: f64 = 0.9;

#[derive(Default)]
struct Steady {
    answered: Mutex<Vec<Instant>>,
    refused: AtomicUsize,
}

impl Steady {
    fn goodput(&self, span: Duration) -> f64 {
        let since = Instant::now() - span;
        let count = self.answered.lock().unwrap().iter().filter(|at| **at > since).count();
        count as f64 / span.as_secs_f64()
    }
}

#[derive(Default)]
struct Storm {
    tries: AtomicUsize,
    refused: AtomicUsize,
}

fn charge(public: &str, tenant: usize, key: &str) -> Ask {
    let bearer = format!("Bearer {}", TENANTS[tenant].1);
    Ask::post(format!("{public}/v1/charges"), BODY).with("Authorization", bearer).with("Idempotency-Key", key)
}

fn is_refused(answer: &Answer) -> bool {
    answer.status == 503 && answer.text().contains("\"overloaded\"")
}

async fn ask_steadily(public: String, steady: Arc<Steady>) {
    let (connections, mut asking) = (Arc::new(Connections::default()), JoinSet::new());
    let mut due = tokio::time::Instant::now();
    loop {
        wait::pause_until(due).await;
        due += Duration::from_secs(1) / RATE;
        let (connections, steady) = (connections.clone(), steady.clone());
        let request = charge(&public, 0, &key("steady"));
        asking.spawn(async move {
            let Ok(answer) = connections.send(request, PATIENCE).await else { return };
            if answer.status == 201 {
                steady.answered.lock().unwrap().push(Instant::now());
            } else if is_refused(&answer) {
                steady.refused.fetch_add(1, SeqCst);
            }
        });
        while asking.try_join_next().is_some() {}
    }
}

/// One client of a storm: the same few keys again and again, without a pause.
async fn rage(public: String, tenant: usize, number: usize, storm: Arc<Storm>) {
    let connections = Connections::default();
    // Five clients share a key. One key of five is refused by its upstream, so that each try runs.
    // On the others, tries wait for the running one.
    let (shared, slow) = (number / 5, !(number / 5).is_multiple_of(5));
    for round in 0_usize.. {
        let key = format!("storm-{shared}-{}", round / 20);
        let request =
            charge(&public, tenant, &key).with("Demo-Behave", if slow { "slow=900ms" } else { "status=429" });
        // The client ignores its answer, and also a broken connection.
        if connections.send(request, PATIENCE).await.is_ok_and(|answer| is_refused(&answer)) {
            storm.refused.fetch_add(1, SeqCst);
        }
        storm.tries.fetch_add(1, SeqCst);
    }
}

/// A storm of this tenant, until it has filled the gateway, and the goodput after it.
async fn weather(solo: &Solo, steady: &Steady, tenant: usize) -> usize {
    let second = Duration::from_secs(1);
    let usual = f64::from(RATE) * 0.9;
    until("a steady load", async || steady.goodput(3 * second) >= usual).await;
    // Answers of earlier seconds may add to the rate.
    let before = steady.goodput(3 * second).min(f64::from(RATE));
    let refused_before = steady.refused.load(SeqCst);

    let (storm, mut clients) = (Arc::new(Storm::default()), JoinSet::new());
    for number in 0..STORMING {
        clients.spawn(rage(solo.public(), tenant, number, storm.clone()));
    }
    let begun = Instant::now();
    let lowest = Mutex::new(before);
    until("the storm to rage, and to find the gateway full", async || {
        if begun.elapsed() > second {
            let mut lowest = lowest.lock().unwrap();
            *lowest = lowest.min(steady.goodput(second));
        }
        let tries = (storm.tries.load(SeqCst), storm.refused.load(SeqCst));
        begun.elapsed() >= STORM_FOR && tries.0 >= STORM && tries.1 >= STORM / 10
    })
    .await;
    let lasted = begun.elapsed();
    clients.shutdown().await;

    let ended = Instant::now();
    let back = async || {
        // The measured seconds begin after the storm.
        let is_back = ended.elapsed() >= 3 * second && steady.goodput(3 * second) >= before * BACK_TO;
        Ok(is_back.then(|| ended.elapsed()))
    };
    let back = wait::for_some("goodput to be back", BACK_WITHIN, back).await;
    let refused = steady.refused.load(SeqCst) - refused_before;
    println!(
        "{before:.1} answers/s before, {:.1} at worst in a storm of {lasted:.1?} by {} ({} of {} tries found the gateway full, and {refused} of the steady \
         ones), back after {back:.1?}, {:.1} at the end",
        lowest.into_inner().unwrap(),
        TENANTS[tenant].0,
        storm.refused.load(SeqCst),
        storm.tries.load(SeqCst),
        steady.goodput(second)
    );
    back.expect("goodput");
    refused
}

#[test]
fn goodput_returns_within_ten_seconds_of_a_storm() {
    run(async {
        let _alone = alone().await;
        let solo = Solo::start_adding(&routes(), None, REQUESTS).await;
        let steady = Arc::new(Steady::default());
        let asking = tokio::spawn(ask_steadily(solo.public(), steady.clone()));
        let refused = weather(&solo, &steady, 1).await;
        assert_eq!(refused, 0, "another tenant's storm took places of the steady clients");
        assert!(weather(&solo, &steady, 0).await > 0, "their own tenant's storm did not bite");
        asking.abort();
        for total in solo.ledger.totals(None) {
            assert_eq!(total.effects, 1, "{}", total.key);
        }
    });
}
