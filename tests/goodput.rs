//! A retry storm and the ten seconds after it: goodput is back to what it was before, and the storm had no effect twice.
//!
//! Steady clients start fresh keys at a fixed rate, whatever becomes of the ones before. Then many others, who heed no `Retry-After`, hammer keys whose
//! upstream is slow or refuses, each refusal followed by the next try at once. Neighbours: `storm.rs` kills gateways and counts effects; here
//! nothing dies. It must not look into the gateway.

mod support;

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use onceway::fleet::wait;
use support::keepalive::Connections;
use support::solo::{Solo, routes};
use support::{BODY, PATIENCE, key, post, run, until};
use tokio::task::JoinSet;

/// Fresh keys per second of the steady clients.
const RATE: u32 = 20;
/// Clients of the storm, each with one request at a time.
const STORMING: usize = 120;
/// How many requests of theirs make a storm.
const STORM: usize = 2_000;
/// How long goodput may take to come back, and to how much of what it was.
const BACK_WITHIN: Duration = Duration::from_secs(10);
const BACK_TO: f64 = 0.8;

/// When steady requests were answered.
#[derive(Default)]
struct Goodput(Mutex<Vec<Instant>>);

impl Goodput {
    /// Answers of the last `span`, per second.
    fn over(&self, span: Duration) -> f64 {
        let since = Instant::now() - span;
        let count = self.0.lock().unwrap().iter().filter(|at| **at > since).count();
        count as f64 / span.as_secs_f64()
    }
}

/// Starts a fresh key each twentieth of a second for as long as it is polled.
async fn steady(public: String, goodput: Arc<Goodput>) {
    let (connections, mut asking) = (Arc::new(Connections::default()), JoinSet::new());
    let mut due = tokio::time::Instant::now();
    loop {
        wait::pause_until(due).await;
        due += Duration::from_secs(1) / RATE;
        let (connections, goodput) = (connections.clone(), goodput.clone());
        let request = post(&public, "/v1/charges", &key("steady"), BODY);
        asking.spawn(async move {
            if connections.send(request, PATIENCE).await.is_ok_and(|answer| answer.status == 201) {
                goodput.0.lock().unwrap().push(Instant::now());
            }
        });
        while asking.try_join_next().is_some() {}
    }
}

/// One client of the storm: the same few keys again and again, without a pause.
async fn rage(public: String, number: usize, tries: Arc<AtomicUsize>) {
    let connections = Connections::default();
    // Five share a key. Every other key is refused by its upstream, so that each try runs; the others are waited for.
    let (shared, behave) = (number / 5, ["status=503", "slow=900ms"][number / 5 % 2]);
    for round in 0_usize.. {
        let key = format!("storm-{shared}-{}", round / 20);
        let request = post(&public, "/v1/charges", &key, BODY).with("Demo-Behave", behave);
        // What it is told, or that it was cut off, is all the same to it.
        let _heedless = connections.send(request, PATIENCE).await;
        tries.fetch_add(1, SeqCst);
    }
}

#[test]
fn goodput_is_back_within_ten_seconds_of_a_retry_storm() {
    run(async {
        let solo = Solo::start(&routes(), None).await;
        let (goodput, tries) = (Arc::new(Goodput::default()), Arc::new(AtomicUsize::new(0)));
        let steady = tokio::spawn(steady(solo.public(), goodput.clone()));
        let second = Duration::from_secs(1);
        let usual = f64::from(RATE) * 0.9;
        until("a steady load", async || goodput.over(3 * second) >= usual).await;
        let before = goodput.over(3 * second);

        let mut storm = JoinSet::new();
        for number in 0..STORMING {
            storm.spawn(rage(solo.public(), number, tries.clone()));
        }
        let begun = Instant::now();
        let lowest = Mutex::new(before);
        until("the storm to rage", async || {
            if begun.elapsed() > second {
                let mut lowest = lowest.lock().unwrap();
                *lowest = lowest.min(goodput.over(second));
            }
            tries.load(SeqCst) >= STORM
        })
        .await;
        let lasted = begun.elapsed();
        storm.shutdown().await;

        let ended = Instant::now();
        let back = async || {
            // The second that is looked at lies behind the storm.
            let is_back = ended.elapsed() >= second && goodput.over(second) >= before * BACK_TO;
            Ok(is_back.then(|| ended.elapsed()))
        };
        let back = wait::for_some("goodput to be back", BACK_WITHIN, back).await;
        steady.abort();
        let lowest = lowest.into_inner().unwrap();
        println!(
            "{before:.1} answers/s before, {lowest:.1} at worst in a storm of {lasted:.1?}, back after {back:.1?}, {:.1} at the end",
            goodput.over(second)
        );
        back.expect("goodput");
        for total in solo.ledger.totals(None) {
            assert_eq!(total.effects, 1, "{}", total.key);
        }
    });
}
