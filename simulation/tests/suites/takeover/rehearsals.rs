//! Dry runs of operators' acts: they change nothing anywhere, report the act's result, and are
//! refused for the act's own reasons.

use onceway::gateway::authority::acts::dry_run::{Act, Rehearsal};

use super::trio::*;

/// The traces of an act in any store: gates, promises, views, writes of records and the journal, as
/// numbers of entries.
fn left_behind(trio: &Trio) -> Vec<[usize; 5]> {
    let truths = trio.world.cluster.truths();
    let counted = truths.iter().map(|store| {
        let history = &store.history;
        let register = [history.gates.len(), history.acceptors.len(), history.views.len()];
        [register[0], register[1], register[2], store.writes.len(), store.journal.len()]
    });
    counted.collect()
}

/// Waits until nothing changes by itself any more, such as views that are adopted and windows that
/// run; for three seconds at most.
async fn quiet(trio: &Trio) {
    let mut before = left_behind(trio);
    for _ in 0..6 {
        sleep(ms(500)).await;
        let now = left_behind(trio);
        if now == before {
            return;
        }
        before = now;
    }
}

async fn rehearse(trio: &Trio, act: Act<'_>) -> Result<Rehearsal, ActError> {
    let gateway = trio.gateway(&b());
    quiet(trio).await;
    let before = left_behind(trio);
    let answer = gateway.rehearse(act).await;
    assert_eq!(left_behind(trio), before, "a dry run left something behind: {answer:?}");
    assert!(answer.as_ref().is_ok_and(|answer| answer.dry_run) || answer.is_err());
    answer
}

#[test]
fn rehearsals_predict_a_drain_and_a_return() {
    on(Trio::start(1), async |trio| {
        let (a, b) = (a(), b());
        let gateway = trio.gateway(&b);
        let answer = rehearse(&trio, Act::Drain { region: &a, force: false }).await.unwrap();
        let owned: u32 = answer.moves.iter().map(|moved| moved.arcs).sum();
        assert!(answer.changes && answer.moves.iter().all(|moved| moved.from == a.as_str()), "{answer:?}");
        assert_eq!(owned, trio.gate(&b).view.shares()[&a], "everything that a owns");
        assert!(answer.effects.iter().any(|effect| effect.contains("would pause the keys")), "{answer:?}");
        assert_eq!(Some(trio.drain(&b, &a, false).await.unwrap()), answer.epoch);
        let again = rehearse(&trio, Act::Drain { region: &a, force: false }).await.unwrap();
        assert!(!again.changes && again.epoch == answer.epoch && again.moves.is_empty(), "{again:?}");
        let home = rehearse(&trio, Act::Resume { region: &a }).await.unwrap();
        assert_eq!(home.moves.iter().map(|moved| moved.arcs).sum::<u32>(), owned);
        assert_eq!(Some(trio.ask(async || gateway.resume(&a, "test").await).await.unwrap()), home.epoch);
        trio.finish();
    });
}

#[test]
fn a_ring_is_rehearsed_against_the_epoch_that_it_was_planned_on() {
    on(Trio::start(2), async |trio| {
        let b = b();
        let wanted = ring(&[(a(), 1), (b.clone(), 2), (c(), 1)]);
        let apply = |expect_epoch| Act::Apply { ring: wanted.clone(), escrow: BTreeSet::new(), expect_epoch };
        let epoch = trio.gate(&b).view.epoch();
        assert_eq!(rehearse(&trio, apply(epoch + 1)).await.unwrap_err().code, "epoch");
        let answer = rehearse(&trio, apply(epoch)).await.unwrap();
        assert!(
            answer.moves.iter().all(|moved| moved.to == b.as_str()) && !answer.moves.is_empty(),
            "{answer:?}"
        );
        let shrunk = ring(&[(a(), 1), (b.clone(), 1)]);
        let act = Act::Apply { ring: shrunk, escrow: BTreeSet::new(), expect_epoch: epoch };
        refused(rehearse(&trio, act).await, "refused", "");
        trio.finish();
    });
}

#[test]
fn a_rehearsal_fails_for_the_reasons_of_its_act() {
    on(Trio::start(3), async |trio| {
        let (a, b, c) = (a(), b(), c());
        let gateway = trio.gateway(&b);
        let serving = rehearse(&trio, Act::Rebuild { region: &a, accept_risk: true }).await.unwrap_err();
        assert_eq!(serving, gateway.rebuild(&a, true, "test", "").await.unwrap_err());
        let runs = rehearse(&trio, Act::Takeover { region: &a, accept_risk: false }).await.unwrap_err();
        assert_eq!(
            (runs.code, &runs),
            ("not-yet", &gateway.takeover(&a, false, "test", "").await.unwrap_err())
        );
        let stopped = BTreeSet::from([a.clone(), c.clone()]);
        let whole = rehearse(&trio, Act::BreakGlass { stopped: &stopped }).await.unwrap_err();
        assert_eq!(whole, gateway.break_glass(&stopped, "test", "test").await.unwrap_err());
        let founded = rehearse(&trio, Act::Found { escrow: BTreeSet::new(), epoch_above: None }).await;
        assert_eq!(founded.unwrap_err().code, "refused");
        let nobody = RegionName::parse("nobody").unwrap();
        refused(rehearse(&trio, Act::Resume { region: &nobody }).await, "unknown-region", "");
        trio.cut_off(&a, true);
        sleep(ms(1_000)).await;
        refused(
            rehearse(&trio, Act::Drain { region: &a, force: false }).await,
            "not-yet",
            &format!("region {a} does not answer"),
        );
        trio.lose(&c);
        sleep(ms(1_500)).await;
        // Meanwhile the survivors propose the loss of the others, again and again: here only the
        // answer is looked at.
        let alone = gateway.rehearse(Act::Drain { region: &a, force: true }).await.unwrap_err();
        assert!(alone.detail.contains(&format!("no majority of the acceptors answers: {b} of 3")), "{alone}");
    });
}

#[test]
fn a_takeover_a_new_store_and_a_broken_glass_are_rehearsed() {
    on(Trio::start(4), async |trio| {
        let (a, b, c) = (a(), b(), c());
        let gateway = trio.gateway(&b);
        trio.lose(&a);
        trio.until("a is lost", TAKEOVER, async || trio.standing(&a, &b) == "lost").await;
        // Both have adopted the view by then.
        sleep(ms(1_000)).await;
        let answer = rehearse(&trio, Act::Takeover { region: &a, accept_risk: true }).await.unwrap();
        let done = gateway.takeover(&a, true, "test", "test").await.unwrap();
        assert_eq!((answer.epoch, answer.waived), (Some(done.epoch), Some(done.waived)));
        assert!(answer.effects.iter().any(|effect| effect.contains("a second time")), "{:?}", answer.effects);
        refused(rehearse(&trio, Act::Rebuild { region: &a, accept_risk: false }).await, "refused", "");
        let answer = rehearse(&trio, Act::Rebuild { region: &a, accept_risk: true }).await.unwrap();
        let done = gateway.rebuild(&a, true, "test", "test").await.unwrap();
        assert_eq!((answer.epoch, answer.generation), (Some(done.epoch), Some(done.generation)));
        sleep(ms(1_000)).await;
        trio.lose(&c);
        sleep(LEASE * 2).await;
        let stopped = BTreeSet::from([a.clone(), c.clone()]);
        let answer = rehearse(&trio, Act::BreakGlass { stopped: &stopped }).await.unwrap();
        assert!(
            answer.moves.iter().any(|moved| moved.from == c.as_str() && moved.to == b.as_str()),
            "{answer:?}"
        );
        // The act draws the epoch anew, so the dry run names none. It only says how far ahead the
        // epoch will be.
        assert!(
            answer.epoch.is_none()
                && answer.effects.iter().any(|effect| effect.contains("a million or more ahead")),
            "{answer:?}"
        );
        let done = gateway.break_glass(&stopped, "test", "both are off").await.unwrap();
        assert!(done > answer.from_epoch + 1_000_000, "{done} after {}", answer.from_epoch);
    });
}

/// A change that was begun at an acceptor and not ended comes first, rehearsed or not.
#[test]
fn an_unfinished_change_prevents_another_ones_dry_run() {
    on(Trio::start(8), async |trio| {
        let (a, b, c) = (a(), b(), c());
        let gateway = trio.gateway(&b);
        let view = trio.gate(&b).view;
        let next = Arc::new(view.next(&Change::Lose { region: a.clone(), frontier: 1 }).unwrap());
        // Only the acceptor of c takes it, and c's process does not learn that it should end it.
        trio.node(&c).process.pause();
        trio.begin_change(&c, c.clone(), next).await;
        trio.node(&c).process.resume();
        refused(
            gateway.rehearse(Act::Drain { region: &a, force: false }).await,
            "not-yet",
            "begun and not ended comes first",
        );
    });
}
