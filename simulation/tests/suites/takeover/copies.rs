//! Survivors' copies of a lost region differ: no region opens before it has the rows of all of them
//! (docs/protocol.md#rule-33).
//! Or a store copies another one's records for minutes, while that one's heartbeats already arrive
//! (docs/protocol.md#rule-29). A slot was lost each time, as after a long absence of a region, and
//! an operator has everything copied anew (`onceway store reseed`).

use super::trio::*;

/// Longer than any scenario here: the copy does not end by itself.
const MINUTES: Duration = Duration::from_secs(600);

/// Loses a's slots for these: its later writes do not reach them.
fn lose_slots(trio: &Trio, readers: &[RegionName]) {
    readers.iter().for_each(|reader| trio.world.cluster.lose_slot(&a(), reader));
}

/// Lets them follow a anew; the copy of its records takes so long.
fn reseed(trio: &Trio, readers: &[RegionName], takes: Duration) {
    readers.iter().for_each(|reader| trio.world.cluster.reseed(&a(), reader, takes));
}

/// A: the lost region is back, and its heartbeats arrive while its rows are copied. Until the rows
/// are complete it stays a risk of its successor's runs.
#[test]
pub fn a_region_that_is_being_copied_is_not_heard_of() {
    on(Trio::start(1), async |trio| {
        let (early, later) = (key_of(&a(), &b(), "early"), key_of(&a(), &b(), "later"));
        lose_slots(&trio, &[b(), c()]);
        for key in [&early, &later] {
            assert_eq!(trio.send(&a(), "/park", key).await.status, 201);
        }
        trio.lose_before(&a(), &b()).await;
        let open = async || trio.gate(&b()).is_open() && trio.gate(&c()).is_open();
        trio.until("its successors are open", ms(20_000), open).await;
        trio.bring_back(&a());
        reseed(&trio, &[b(), c()], ms(20_000));
        // If its heartbeats counted, it would seal now, and be no risk any more.
        for _ in 0..80 {
            if matches!(trio.gate(&b()).view.standing(&a()), Some(Standing::Sealed { .. })) {
                break;
            }
            sleep(ms(100)).await;
        }
        assert_eq!(trio.send(&b(), "/park", &early).await.by, b().as_str());
        assert!(trio.risk(&early).contains(&a()), "what ran while the rows of a are copied says so");
        trio.check();
        trio.all_home(ms(60_000)).await;
        trio.replays_once(&c(), "/park", &later, ms(5_000)).await;
        let noted = async || trio.journalled("double").contains(&id(&early));
        trio.until("the double is noted", ms(5_000), noted).await;
    });
}

/// B: k was lodged with b; since a change of the ring c is its target. The absence of k at c proves
/// nothing while c copies the rows of a.
#[test]
pub fn a_new_target_that_is_copying_proves_no_absence() {
    on(Trio::start(2), async |trio| {
        let lighter = ring(&[(a(), 100), (b(), 10), (c(), 300)]);
        let after = founding(lighter.clone());
        let before = founding(first_ring());
        let moves = |key: &String| {
            let stands = |view: &View, target: &RegionName| {
                (view.owner(&id(key)), view.target(&id(key))) == (Some(&a()), Some(target))
            };
            stands(&before, &b()) && stands(&after, &c())
        };
        let key = (0_u32..).map(|number| format!("moved-{number}")).find(moves).unwrap();
        lose_slots(&trio, &[c()]);
        assert_eq!(trio.send(&a(), "/strict", &key).await.status, 201);
        let epoch = trio.gate(&b()).view.epoch();
        let escrow = trio.gate(&b()).view.escrow().keys().cloned().collect();
        trio.gateway(&b()).apply(lighter, escrow, epoch, "ann").await.unwrap();
        reseed(&trio, &[c()], MINUTES);
        // A heartbeat of the new epoch is at c, and none of the rows.
        sleep(ms(1_500)).await;
        // c gets neither b's record of the claim that it holds, nor b's report that it has any.
        trio.hold(&b(), &[c()], true);
        trio.world.network.set_letters(&c(), &b(), Letter::Frontier, Some(Post::Lost));
        trio.lose_before(&a(), &c()).await;
        is_never_run_by_c(&trio, "/strict", &key).await;
    });
}

/// B, with routes that run on alone: a was the last region that served, so the key was lodged
/// nowhere. c serves again, and copies.
#[test]
pub fn a_target_that_is_back_and_copying_proves_no_absence() {
    on(Trio::start(3), async |trio| {
        let key = key_of(&a(), &c(), "alone");
        lose_slots(&trio, &[c()]);
        for drained in [b(), c()] {
            trio.drain(&a(), &drained, true).await.unwrap();
        }
        let alone = async || trio.gate(&a()).view.target(&id(&key)).is_none();
        trio.until("a's gate follows", ms(1_000), alone).await;
        assert_eq!(trio.send(&a(), "/strict-alone", &key).await.status, 201);
        trio.until("b knows of it", ms(2_000), async || trio.standing(&c(), &b()) == "drained").await;
        trio.gateway(&b()).resume(&c(), "ann").await.unwrap();
        reseed(&trio, &[c()], MINUTES);
        trio.until("c serves", ms(20_000), async || trio.gate(&a()).view.serves(&c())).await;
        sleep(ms(1_500)).await;
        trio.lose_before(&a(), &c()).await;
        is_never_run_by_c(&trio, "/strict-alone", &key).await;
    });
}

/// c has none of the rows of a, so it does not run the key as one that was never sent. It waits
/// until another region reports the key's state.
async fn is_never_run_by_c(trio: &Trio, path: &str, key: &str) {
    for _ in 0..100 {
        let answer = trio.send(&c(), path, key).await;
        assert!(trio.effects(key).len() == 1, "run again without a word of a risk: {answer:?}");
        trio.check();
        sleep(ms(100)).await;
    }
}

/// c had the rows of a complete, and copies them anew when a dies. It still has its old rows, and
/// b, which lacks one, gets it from c.
#[test]
pub fn complete_rows_count_while_they_are_copied_anew() {
    keyed(Trio::start(5), async |trio, key| {
        trio.runs_unheard(&[b()], "/park", &key).await;
        sleep(ms(1_000)).await;
        lose_slots(&trio, &[c()]);
        reseed(&trio, &[c()], MINUTES);
        sleep(ms(500)).await;
        trio.lose(&a());
        trio.replays_once(&b(), "/park", &key, TAKEOVER + ms(10_000)).await;
    });
}

/// a is drained while c copies its rows: c opens its gained keys once the rows are complete, not
/// once the heartbeat is there.
#[test]
pub fn gained_keys_open_when_the_copy_is_complete() {
    checked(Trio::start(6), async |trio| {
        let key = key_of(&a(), &c(), "drained");
        lose_slots(&trio, &[c()]);
        assert_eq!(trio.send(&a(), "/park", &key).await.status, 201);
        reseed(&trio, &[c()], ms(15_000));
        sleep(ms(1_000)).await;
        trio.drain(&b(), &a(), true).await.unwrap();
        trio.until("c knows of it", ms(2_000), async || trio.standing(&a(), &c()) == "drained").await;
        for _ in 0..100 {
            assert_eq!(trio.send(&c(), "/park", &key).await.said(), (503, "moving"));
            trio.check();
            sleep(ms(100)).await;
        }
        trio.replays_once(&c(), "/park", &key, ms(10_000)).await;
    });
}

/// H: c copies the rows of a when a dies for good. The heartbeat that c heard of a is no frontier:
/// no region could ever reach it.
#[test]
pub fn a_heartbeat_ahead_of_its_rows_makes_no_frontier() {
    checked(Trio::start(4), async |trio| {
        let (known, new) = (key_of(&a(), &b(), "known"), key_of(&a(), &b(), "new"));
        assert_eq!(trio.send(&a(), "/park", &known).await.status, 201);
        sleep(ms(500)).await;
        lose_slots(&trio, &[b(), c()]);
        sleep(ms(1_000)).await;
        reseed(&trio, &[c()], MINUTES);
        sleep(ms(1_500)).await;
        trio.lose_disk(&a());
        trio.until_lost(&a(), &b()).await;
        let open = async || trio.gate(&b()).is_open() && trio.gate(&c()).is_open();
        trio.until("what was gained opens", ms(40_000), open).await;
        assert!(trio.insist(&b(), "/park", &known, ms(5_000)).await.replayed);
        assert_eq!(trio.insist(&b(), "/park", &new, ms(5_000)).await.by, b().as_str());
    });
}

/// c has the row, b takes over (docs/protocol.md#rule-33).
#[test]
pub fn the_gainer_fetches_rows_from_another_survivor() {
    keyed(Trio::start(1), async |trio, key| {
        trio.runs_unheard(&[b()], "/park", &key).await;
        sleep(ms(500)).await;
        trio.lose(&a());
        trio.replays_once(&b(), "/park", &key, TAKEOVER).await;
    });
}

/// The other survivor cannot be asked: no gained key opens until it answers, even after the window.
#[test]
fn nothing_opens_while_a_survivor_is_silent() {
    keyed(Trio::start(2), async |trio, key| {
        trio.runs_unheard(&[b()], "/park", &key).await;
        sleep(ms(500)).await;
        trio.lose_before(&a(), &b()).await;
        trio.world.cut(&b(), &c(), true, ONE_WAY);
        trio.refuses(&b(), "/park", &key, &[503], 40).await;
        trio.world.cut(&b(), &c(), false, ONE_WAY);
        trio.replays_once(&b(), "/park", &key, ms(20_000)).await;
    });
}

/// Rows of the lost region arrive at c after its loss was agreed on, and c is drained. c's
/// heartbeat of them becomes the frontier, and b fetches the rows.
#[test]
pub fn a_losers_rows_raise_a_frontier() {
    keyed(Trio::start(3), async |trio, key| {
        trio.hold(&a(), &[b()], true);
        trio.world.cluster.set_delay(&a(), &c(), ms(4_600));
        sleep(ms(5_500)).await;
        assert_eq!(trio.send(&a(), "/park", &key).await.status, 201);
        // Gone, but its commits are still under way to c.
        trio.node(&a()).process.kill();
        trio.store(&a(), StoreMode::Refuse);
        for other in [b(), c()] {
            trio.link(&a(), &other, LinkMode::Silent);
        }
        trio.until_lost(&a(), &b()).await;
        let frontier = trio.gate(&b()).view.members()[&a()].mark;
        sleep(ms(2_500)).await;
        trio.drain(&b(), &c(), true).await.unwrap();
        trio.until("c has gone", ms(2_000), async || !trio.gate(&b()).view.serves(&c())).await;
        let member = trio.gate(&b()).view.members()[&a()];
        assert!(matches!(member.standing, Standing::Lost { .. }));
        assert!(member.mark > frontier, "{} after {frontier}", member.mark);
        trio.replays_once(&b(), "/park", &key, TAKEOVER + ms(10_000)).await;
    });
}
