//! Keys that a lost region left open: their new owner lists them, and ends those whose upstream can
//! answer. Those that ran by the window alone are in the journal.

use onceway::ports::upkeep::{Act, Ruling};

use super::trio::*;

/// The wait for a lost region's claim, with everything that may come before.
const LONG: Duration = ms(60_000);

/// A key that a claims and sends. a never stores the answer, because it is gone by then.
async fn left_behind(trio: &Arc<Trio>, path: &str, mode: UpstreamMode) -> String {
    let key = key_of(&a(), &b(), "left");
    trio.upstream(&a(), mode);
    // Long enough for the claim to arrive at the others, not for the answer.
    let begun = trio.begun(&a(), path, &key, ms(300)).await;
    trio.lose(&a());
    assert_eq!(begun.await.unwrap().status, 0);
    key
}

/// The region that made the attempt, if this region's list has the key.
async fn listed(trio: &Trio, at: &RegionName, key: &str) -> Option<String> {
    let page = trio.gateway(at).doubts(None, 100).await.unwrap();
    page.doubts.into_iter().find(|doubt| doubt.key == key).map(|doubt| doubt.origin)
}

fn all_probes(trio: &Trio, mode: ProbeMode) {
    regions().iter().for_each(|at| trio.world.upstreams.set_probes(at, mode.clone()));
}

async fn doubles(trio: &Trio) -> u64 {
    let mut all = 0;
    for name in regions() {
        all += trio.world.cluster.store(&name).doubles().await.unwrap().doubles;
    }
    all
}

/// A lodged claim is its successor's own record once its region is lost. It was sent to the lost
/// region's upstream all the same.
#[test]
fn a_probe_asks_the_upstream_that_got_the_request() {
    checked(Trio::start(8), async |trio| {
        trio.hold(&a(), &[b(), c()], true);
        let key = left_behind(&trio, "/strict-probe", receipt(2_500)).await;
        trio.until_state(&b(), &key, "settled", TAKEOVER + ms(3_000)).await;
        let replay = trio.send(&c(), "/strict-probe", &key).await;
        assert_eq!((replay.status, replay.replayed), (201, true));
        assert_eq!((trio.effects(&key).len(), trio.arrived(&b(), &key)), (1, 0), "asked, not run");
    });
}

#[test]
fn the_new_owner_settles_a_key_without_its_client() {
    checked(Trio::start(1), async |trio| {
        let key = left_behind(&trio, "/probe", receipt(2_500)).await;
        trio.until_state(&b(), &key, "settled", TAKEOVER + ms(3_000)).await;
        assert_eq!((trio.effects(&key).len(), trio.arrived(&b(), &key)), (1, 0), "asked, not run");
        assert_eq!(trio.risk(&key), [a()], "the record in a's place says what b cannot know of a");
        let replay = trio.send(&c(), "/probe", &key).await;
        assert_eq!((replay.status, replay.replayed), (201, true));
        assert_eq!(replay.body, trio.effects(&key)[0].body, "the answer is the effect's own");
        trio.bring_back(&a());
        trio.comes_home(&a(), STABLE + ms(20_000)).await;
        for at in [a(), b()] {
            assert_eq!(listed(&trio, &at, &key).await, None, "{at}");
        }
    });
}

/// Cut off, a stores the answer of its attempt, which its successor learned from the upstream
/// meanwhile: one attempt, one effect, no double.
#[test]
fn an_answer_that_comes_home_after_all_is_no_double() {
    keyed(Trio::start(2), async |trio, key| {
        trio.upstream(&a(), receipt(2_500));
        let begun = trio.begun(&a(), "/probe", &key, ms(300)).await;
        trio.cut_off(&a(), true);
        assert_eq!(begun.await.unwrap().status, 201, "what was sent is settled");
        trio.until_state(&b(), &key, "settled", TAKEOVER + ms(3_000)).await;
        trio.cut_off(&a(), false);
        trio.comes_home(&a(), STABLE + ms(20_000)).await;
        sleep(ms(5_000)).await;
        assert_eq!((trio.effects(&key).len(), doubles(&trio).await), (1, 0));
    });
}

#[test]
fn a_key_without_effect_is_released_after_its_attempt() {
    checked(Trio::start(3), async |trio| {
        let key = left_behind(&trio, "/probe", UpstreamMode::Hang).await;
        trio.until("a is lost", TAKEOVER, async || trio.standing(&a(), &b()) == "lost").await;
        sleep(ms(10_000)).await;
        assert_eq!(trio.state(&b(), &key).await, "in-doubt", "its request may be inside the upstream still");
        assert_eq!(listed(&trio, &b(), &key).await.as_deref(), Some("a-west#1"));
        trio.until_state(&b(), &key, "released", LONG).await;
        // Nothing runs without a client.
        assert_eq!((trio.effects(&key).len(), trio.arrived(&b(), &key)), (0, 0));
        assert_eq!(trio.insist(&c(), "/probe", &key, ms(5_000)).await.by, b().as_str());
        assert_eq!(trio.effects(&key).len(), 1);
    });
}

#[test]
fn only_the_owner_lists_a_doubt_without_a_probe() {
    checked(Trio::start(4), async |trio| {
        let key = left_behind(&trio, "/park", receipt(2_500)).await;
        let others = key_of(&a(), &c(), "others");
        let holds = async || listed(&trio, &b(), &key).await.as_deref() == Some("a-west#1");
        trio.until("b lists it", TAKEOVER + ms(3_000), holds).await;
        assert_eq!(listed(&trio, &c(), &key).await, None, "it is not c's");
        assert_eq!(listed(&trio, &b(), &others).await, None);
        trio.until("its time is over", LONG, async || {
            let page = trio.gateway(&b()).doubts(None, 100).await.unwrap();
            page.doubts.iter().any(|doubt| doubt.key == key && doubt.over_in_ms == 0)
        })
        .await;
        sleep(ms(5_000)).await;
        let act =
            Act { ruling: Ruling::Released, actor: "ada".to_owned(), reason: "no such payout".to_owned() };
        assert_eq!(trio.gateway(&b()).rule(&id(&key), &act).await.unwrap().state, "released");
        assert_eq!(listed(&trio, &b(), &key).await, None);
        assert_eq!(trio.world.cluster.store(&b()).unlist().await, Ok(0), "nothing is left on the list");
    });
}

/// An operator asks any region, and is told of every region's doubts once, and of whoever is
/// silent.
#[test]
fn one_region_lists_the_doubts_of_all() {
    checked(Trio::start(6), async |trio| {
        let (left, own) = (key_of(&a(), &b(), "left"), key_of(&c(), &b(), "own"));
        for (name, key) in [(a(), &left), (c(), &own)] {
            trio.upstream(&name, UpstreamMode::DropBeforeEffect);
            assert_eq!(trio.send(&name, "/park", key).await.status, 504);
        }
        let listed_by = async |at: &RegionName, most| {
            let page = trio.gateway(at).all_doubts(None, most).await.unwrap();
            let doubts = page.doubts.iter().map(|doubt| (doubt.key.clone(), doubt.owner.clone().unwrap()));
            (doubts.collect::<Vec<_>>(), page.silent.into_keys().collect::<Vec<_>>(), page.more)
        };
        let mut both = vec![(left.clone(), "a-west".to_owned()), (own.clone(), "c-east".to_owned())];
        both.sort();
        let holds = async || listed_by(&b(), 9).await == (both.clone(), vec![], false);
        trio.until("all are listed", ms(5_000), holds).await;
        assert_eq!(listed_by(&b(), 1).await, (both[..1].to_vec(), vec![], true), "a page of it");
        trio.lose(&a());
        let (listed, silent, _) = listed_by(&c(), 9).await;
        assert_eq!((listed, silent), (vec![(own.clone(), "c-east".to_owned())], vec!["a-west".to_owned()]));
        // Its successor lists what it left behind, and its own list is unknown still.
        let holds = async || listed_by(&c(), 9).await.0.contains(&(left.clone(), "b-mid".to_owned()));
        trio.until("b lists it for a", TAKEOVER + ms(5_000), holds).await;
        assert_eq!(listed_by(&c(), 9).await.1, ["a-west"]);
    });
}

/// Its home is back before the key was ended: the attempt is the home's own again, and the region
/// that stood in for it no longer lists it.
#[test]
fn a_key_that_goes_home_in_doubt_is_listed_there() {
    checked(Trio::start(5), async |trio| {
        let key = left_behind(&trio, "/probe", receipt(2_500)).await;
        all_probes(&trio, ProbeMode::CannotSay);
        trio.until("b lists it", TAKEOVER + ms(3_000), async || listed(&trio, &b(), &key).await.is_some())
            .await;
        trio.bring_back(&a());
        trio.comes_home(&a(), STABLE + ms(20_000)).await;
        trio.until("a lists it, and b does not", LONG, async || {
            listed(&trio, &a(), &key).await.is_some()
                && trio.world.cluster.store(&b()).unlist().await == Ok(0)
        })
        .await;
        all_probes(&trio, ProbeMode::Ledger);
        trio.until_state(&a(), &key, "settled", ms(400_000)).await;
        assert_eq!((trio.effects(&key).len(), doubles(&trio).await), (1, 0));
    });
}

/// b dies right after it wrote the outcome of a's attempt, and then nobody can say any more what
/// happened. No row is left that reads as an attempt of b's own, which b's upstream does not know.
/// With two statements, the first one was left, b's upstream answered "none", and the key was free.
#[test]
fn a_dying_stand_in_writes_everything_or_nothing() {
    for mode in [receipt(2_500), UpstreamMode::Hang] {
        checked(Trio::start(9), async |trio| {
            let key = left_behind(&trio, "/probe", mode.clone()).await;
            trio.node(&b()).process.dies_at(&[Point::StandIn]);
            trio.until("b dies", LONG, async || trio.node(&b()).process.is_dead()).await;
            all_probes(&trio, ProbeMode::CannotSay);
            trio.world.upstreams.set_probes(&b(), ProbeMode::DidNotHappen);
            trio.begin_process(&b());
            trio.until("b serves again", TAKEOVER, async || trio.serves(&b())).await;
            sleep(ms(20_000)).await;
            let happened = trio.effects(&key).len();
            let answer = trio.insist(&b(), "/probe", &key, ms(5_000)).await;
            assert_eq!((answer.status, answer.replayed), (201, happened == 1), "{mode:?}");
            assert_eq!(trio.effects(&key).len(), 1, "{mode:?}");
        });
    }
}

/// The lost region ran it, and no survivor could know: both answers are in the journal once both
/// rows are in one place.
#[test]
fn the_lost_regions_row_reveals_a_double() {
    keyed(Trio::start(1), async |trio, key| {
        trio.runs_unheard(&[b(), c()], "/park", &key).await;
        trio.lose(&a());
        let second = trio.insist(&b(), "/park", &key, TAKEOVER).await;
        assert_eq!((second.by.as_str(), second.replayed), (b().as_str(), false));
        assert!(trio.risk(&key).contains(&a()), "it says so in its claim");
        assert!(trio.journalled("double").is_empty(), "nobody can know yet");
        trio.bring_back(&a());
        trio.all_home(ms(20_000)).await;
        let noted = async || trio.journalled("double").contains(&id(&key));
        trio.until("the double is noted", ms(5_000), noted).await;
        let bodies: Vec<Bytes> = trio.effects(&key).into_iter().map(|effect| effect.body).collect();
        assert_eq!(bodies.len(), 2);
        // An answer that was replayed already stays.
        for at in [a(), b(), c()] {
            let answer = trio.send(&at, "/park", &key).await;
            assert_eq!((answer.status, answer.replayed, &answer.body), (201, true, &second.body), "{at}");
        }
    });
}

/// b ran it at risk, and nothing happened; a's attempt is in doubt. b's row has the greater token,
/// which hides nothing (docs/protocol.md#rule-4).
#[test]
pub fn a_release_at_risk_does_not_hide_the_lost_regions_doubt() {
    keyed(Trio::start(2), async |trio, key| {
        trio.hold(&a(), &[b(), c()], true);
        trio.upstream(&a(), receipt(2_500));
        let begun = trio.begun(&a(), "/park", &key, ms(300)).await;
        trio.lose(&a());
        assert_eq!(begun.await.unwrap().status, 0, "its client was told nothing");
        trio.upstream(&b(), says(30, 429, false));
        let released = async || {
            trio.send(&b(), "/park", &key).await;
            trio.arrived(&b(), &key) > 0
        };
        trio.until("b ran it, and nothing happened", TAKEOVER, released).await;
        trio.upstream(&a(), receipt(50));
        trio.bring_back(&a());
        trio.all_home(ms(20_000)).await;
        sleep(HOLD).await;
        for at in [a(), b(), c()] {
            assert_eq!(trio.send(&at, "/park", &key).await.said(), (409, "outcome-unknown"), "{at}");
        }
        assert_eq!(trio.effects(&key).len(), 1);
    });
}

/// a ran a key and handed it to c by a clean move. Both are lost, and their rows are nowhere. An
/// operator accepts that: the run that follows names a too, which does not own the key any more.
#[test]
fn an_accepted_risk_names_the_keys_earlier_owner() {
    on(Trio::witnessed(40, vec![witness(), region("w-far")]), async |fleet| {
        let key = key_of(&a(), &c(), "moved");
        fleet.hold(&a(), &[b()], true);
        assert_eq!(fleet.insist(&a(), "/park", &key, ms(5_000)).await.by, a().as_str());
        fleet.drain(&a(), &a(), false).await.unwrap();
        let owns = async || fleet.gate(&c()).view.owner(&id(&key)) == Some(&c());
        fleet.until("c owns the key", ms(20_000), owns).await;
        assert_eq!(fleet.insist(&c(), "/park", &key, ms(10_000)).await.by, a().as_str(), "c has the row");
        let gateway = fleet.gateway(&b());
        for region in [a(), c()] {
            fleet.lose(&region);
            let accept = async || gateway.takeover(&region, true, "ann", "both are gone").await;
            fleet.ask(async || accept().await.map(|report| report.epoch)).await.unwrap();
        }
        assert_eq!(fleet.insist(&b(), "/park", &key, TAKEOVER * 2).await.by, b().as_str());
        let risk: BTreeSet<RegionName> = fleet.risk(&key).into_iter().collect();
        assert_eq!((fleet.effects(&key).len(), risk), (2, [a(), c()].into()));
    });
}
