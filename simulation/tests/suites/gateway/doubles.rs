//! Keys that two regions ran are found by their rows, at little cost, no matter what their claims
//! say or how many records exist.
//!
//! [`super::upkeep`] has keys that ran at risk, the suite `takeover` those after a loss. Rows are
//! written behind the gateways here, because no gateway of this build writes such rows. It must not
//! judge what a double is: `protocol::double` does.

use std::time::Duration;

use onceway::ports::audit::Counted;
use onceway::ports::store::{Attempt, ClaimAsk, Written};
use onceway::ports::{Audit, KeyStore, Upkeep};
use onceway::protocol::double::Why;
use onceway::protocol::record::Basis;
use onceway::protocol::region::RegionName;
use simulation::cluster::StoreMode;
use simulation::store::SimStore;
use tokio::time::sleep;

use super::bench::{Bench, RETENTION, TOMBSTONE, id, ms, region, regions, served, until};
use super::upkeep::{answer, claim, won};

/// A life that no test outlasts.
const LONG: Duration = Duration::from_secs(RETENTION.as_secs() * 40);

/// Both regions settle the key, and neither knows of the other. Returns eu's and us's attempts.
async fn forged(bench: &Bench, key: &str) -> [Attempt; 2] {
    let [eu, us] = [region("eu"), region("us")];
    hold(bench, true);
    let attempts = [settled(bench, &eu, key, 7_001, LONG).await, settled(bench, &us, key, 7_002, LONG).await];
    hold(bench, false);
    attempts
}

/// Holds the rows of eu and us back from each other, or releases them.
fn hold(bench: &Bench, held: bool) {
    let [eu, us] = [region("eu"), region("us")];
    bench.world.cluster.hold(&eu, &us, held);
    bench.world.cluster.hold(&us, &eu, held);
}

async fn claimed(bench: &Bench, at: &RegionName, ask: ClaimAsk) -> Attempt {
    let store = bench.world.cluster.store(at);
    let gate = store.gate().await.unwrap().version;
    won(&store, &ClaimAsk { gate, ..ask }).await
}

async fn settled(bench: &Bench, at: &RegionName, key: &str, nonce: u128, life: Duration) -> Attempt {
    let attempt = claimed(bench, at, claim(key, nonce, life)).await;
    ends(bench, at, &attempt).await;
    attempt
}

async fn ends(bench: &Bench, at: &RegionName, attempt: &Attempt) {
    let store = bench.world.cluster.store(at);
    assert_eq!(store.settle(attempt, &answer()).await, Ok(Written::Done));
}

async fn holds(store: &SimStore, doubles: u64, unexplained: u64) -> bool {
    store.doubles().await == Ok(Counted { doubles, unexplained })
}

#[test]
pub fn an_unmarked_double_is_found_wherever_its_rows_meet() {
    served(Bench::start(21), async |bench, _| {
        let [eu_attempt, us_attempt] = forged(&bench, "silent").await;
        for (at, token) in regions().into_iter().zip([eu_attempt.token, us_attempt.token, eu_attempt.token]) {
            let store = bench.world.cluster.store(&at);
            until("the double to be found", ms(5_000), async || holds(&store, 1, 1).await).await;
            let journal = store.journal(&id("silent")).await.unwrap();
            let [entry] = &journal[..] else { panic!("{at}: journalled once: {journal:?}") };
            assert_eq!((entry.kind.as_str(), entry.explained), ("double", Some(Why::Unexplained)), "{at}");
            assert_eq!(entry.token, Some(token), "{at}: the own row first, else the lesser name's");
            let shown = bench.gateway(&at).findings(None, RETENTION, 10).await.unwrap().findings;
            assert_eq!(shown[0].entry.explained, Some("unexplained"), "{at}");
            let counted = async || bench.gateway(&at).status().await.audit.unexplained == Some(1);
            until("the status to say so", ms(5_000), counted).await;
        }
        sleep(ms(20_000)).await;
        for at in regions() {
            assert!(holds(&bench.world.cluster.store(&at), 1, 1).await, "{at}: found once");
        }
    });
}

/// eu's attempt has no answer. The later one of us, which knows that there was one, names none.
#[test]
pub fn the_settling_region_finds_an_overlooked_earlier_attempt() {
    served(Bench::start(26), async |bench, [eu, us, ap]| {
        hold(&bench, true);
        claimed(&bench, &eu, claim("unseen", 7_001, LONG)).await;
        let basis = Basis::Known { own: None, over: Vec::new(), attempt: 1 };
        let later = claimed(&bench, &us, ClaimAsk { basis, ..claim("unseen", 7_002, LONG) }).await;
        ends(&bench, &us, &later).await;
        hold(&bench, false);
        let store = |at| bench.world.cluster.store(at);
        until("the double to be found", ms(5_000), async || holds(&store(&us), 1, 1).await).await;
        sleep(ms(20_000)).await;
        assert!(holds(&store(&us), 1, 1).await, "found once");
        assert!(holds(&store(&eu), 0, 0).await && holds(&store(&ap), 0, 0).await, "us speaks for itself");
    });
}

/// The clock of eu is years behind while it settles the key, and is right again when the other
/// row comes to eu. By the dates of eu the key's life was over before the other claim.
#[test]
fn a_corrected_clock_hides_no_double() {
    const YEARS_MICROS: i64 = 6 * 365 * 86_400_000_000;
    served(Bench::start(24), async |bench, [eu, us, _]| {
        bench.world.cluster.step_clock(&eu, -YEARS_MICROS);
        hold(&bench, true);
        settled(&bench, &eu, "behind", 7_001, LONG).await;
        settled(&bench, &us, "behind", 7_002, LONG).await;
        sleep(ms(5_000)).await;
        bench.world.cluster.step_clock(&eu, YEARS_MICROS);
        sleep(ms(5_000)).await;
        hold(&bench, false);
        for at in regions() {
            let store = bench.world.cluster.store(&at);
            until(&format!("the double to be found at {at}"), ms(10_000), async || holds(&store, 1, 1).await)
                .await;
        }
    });
}

/// eu forgets a key, us runs it anew, and ap does not know: it has both rows.
#[test]
fn a_forgotten_key_that_ran_again_is_no_double() {
    served(Bench::start(25), async |bench, [eu, us, ap]| {
        settled(&bench, &eu, "anew", 7_001, RETENTION).await;
        sleep(ms(1_000)).await;
        bench.world.cluster.hold(&eu, &ap, true);
        let done = async || bench.state(&us, "anew").await == "absent";
        until("us to forget the key", (RETENTION + TOMBSTONE) * 2, done).await;
        settled(&bench, &us, "anew", 7_002, LONG).await;
        let there = bench.world.cluster.store(&ap);
        until("both rows to stand at ap", ms(5_000), async || {
            there.traces(&[id("anew")]).await.unwrap()[0].iter().filter(|trace| trace.settled).count() == 2
        })
        .await;
        let passes = async || bench.gateway(&ap).status().await.audit.passes;
        let begun = passes().await;
        until("two whole passes", ms(30_000), async || passes().await >= begun + 3).await;
        assert!(holds(&there, 0, 0).await, "the key ran anew");
        bench.world.cluster.hold(&eu, &ap, false);
        let done = async || there.traces(&[id("anew")]).await.unwrap()[0].len() == 1;
        until("ap to forget it too", ms(10_000), done).await;
        for at in regions() {
            assert!(holds(&bench.world.cluster.store(&at), 0, 0).await, "{at}");
        }
    });
}

/// More records than one look takes: the next one goes on behind them, and at last begins anew.
#[test]
fn a_double_is_found_behind_many_records() {
    served(Bench::start(22), async |bench, [eu, ..]| {
        let store = bench.world.cluster.store(&eu);
        let gate = store.gate().await.unwrap().version;
        for number in 0..2_100 {
            let ask = claim(&format!("many-{number:04}"), number + 1, RETENTION * 40);
            let attempt = won(&store, &ClaimAsk { gate, ..ask }).await;
            assert_eq!(store.settle(&attempt, &answer()).await, Ok(Written::Done));
        }
        for (found, key) in ["none-behind-it", "a-first", "many-2099a"].into_iter().enumerate() {
            forged(&bench, key).await;
            let found = found as u64 + 1;
            until("the double to be found", ms(15_000), async || holds(&store, found, found).await).await;
        }
    });
}

/// However slow the store is, the comb takes three per cent of the time. The age of a pass counts
/// from its beginning, even while the store is away.
#[test]
fn the_comb_rests_and_says_how_old_its_last_pass_is() {
    served(Bench::start(23), async |bench, [eu, ..]| {
        let passes = async || bench.gateway(&eu).status().await.audit.passes;
        until("the first pass", ms(5_000), async || passes().await > 0).await;
        let (slow, before) = (ms(100), passes().await);
        bench.world.cluster.set_latency(&eu, slow);
        const SPAN: Duration = ms(120_000);
        sleep(SPAN).await;
        let ran = (passes().await - before) as u32;
        // A look is two calls at most: to the store and back. It finds nothing here.
        assert!(slow * ran <= SPAN / 25, "{ran} passes of {slow:?} in {SPAN:?}");
        assert!(ran >= 10, "it goes on: {ran}");

        bench.world.cluster.set_latency(&eu, ms(1));
        let done = async || bench.gateway(&eu).status().await.audit.age_ms < 3_000;
        until("a pass without a hurry", ms(20_000), done).await;
        bench.store(&eu, StoreMode::Refuse);
        let begun = passes().await;
        sleep(ms(60_000)).await;
        let audit = bench.gateway(&eu).status().await.audit;
        assert!(audit.passes <= begun + 1 && audit.age_ms >= 55_000, "{audit:?}");
        bench.store(&eu, StoreMode::Up);
        until("the next pass", ms(30_000), async || bench.gateway(&eu).status().await.audit.age_ms < 10_000)
            .await;
    });
}
