//! Keys that two regions ran are found by their rows, at little cost, no matter what their claims
//! say or how many records exist.
//!
//! Rows are written behind the gateways here, because no gateway of this build writes such rows.

use onceway::ports::audit::Counted;
use onceway::protocol::double::Why;

use super::bench::*;
use super::upkeep::{answer, claim, won};

const LONG: Duration = Duration::from_secs(RETENTION.as_secs() * 40);

/// Both regions settle the key, and neither knows of the other. Returns eu's and us's attempts.
async fn forged(bench: &Bench, key: &str) -> [Attempt; 2] {
    let [eu, us] = [region("eu"), region("us")];
    hold(bench, true);
    let attempts = [settled(bench, &eu, key, 7_001).await, settled(bench, &us, key, 7_002).await];
    hold(bench, false);
    attempts
}

fn hold(bench: &Bench, held: bool) {
    let [eu, us] = [region("eu"), region("us")];
    bench.world.cluster.hold(&eu, &us, held);
    bench.world.cluster.hold(&us, &eu, held);
}

async fn settled(bench: &Bench, at: &RegionName, key: &str, nonce: u128) -> Attempt {
    let store = bench.world.cluster.store(at);
    let attempt = won(&store, claim(key, nonce, LONG)).await;
    assert_eq!(store.settle(&attempt, &answer()).await, Ok(Written::Done));
    attempt
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

/// The clock of eu is years behind while it settles the key, and is right again when the other
/// row comes to eu. By the dates of eu the key's life was over before the other claim.
#[test]
fn a_corrected_clock_hides_no_double() {
    const YEARS_MICROS: i64 = 6 * 365 * 86_400_000_000;
    served(Bench::start(24), async |bench, [eu, us, _]| {
        bench.world.cluster.step_clock(&eu, -YEARS_MICROS);
        hold(&bench, true);
        settled(&bench, &eu, "behind", 7_001).await;
        settled(&bench, &us, "behind", 7_002).await;
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

/// More records than one look takes: the next one goes on behind them, and at last begins anew.
#[test]
fn a_double_is_found_behind_many_records() {
    served(Bench::start(22), async |bench, [eu, ..]| {
        let store = bench.world.cluster.store(&eu);
        for number in 0..2_100 {
            settled(&bench, &eu, &format!("many-{number:04}"), number + 1).await;
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
