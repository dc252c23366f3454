//! Forged histories of keys that are sent more than once, and which marks of a risk are earned.

use onceway::protocol::view;
use simulation::table::HeardOf;

use super::*;

/// The second attempt of a key, which asks for something else. It is claimed in this store of this
/// region. a's first attempt was claimed in store 1.
fn other_request(store: u64, region: &str, named: bool, same: bool) -> Vec<Invariant> {
    let id = key(&first());
    let second = recorded(claim(20, &id, token(1, 2)), |record| {
        record.over = named.then(|| (origin("a"), token(1, 1))).into_iter().collect();
        // It ran at risk, so other invariants do not matter here.
        record.risk = vec![name("a")];
    });
    let claims = [writes(1, "a", [claim(10, &id, token(1, 1))]), writes(store, region, [second])];
    let asks = |sent: Attempted, body: &'static str| Attempted { body: body.into(), ..sent };
    let sends = arrives([
        asks(sent(11, "a", &id, token(1, 1)), "{}"),
        asks(sent(30, region, &id, token(1, 2)), if same { "{}" } else { "{\"other\":1}" }),
    ]);
    let broken = after_founding(claims.into_iter().chain([sends]));
    // The key's owner does not matter here.
    broken.into_iter().filter(|broken| *broken == Invariant::AsksTheSame).collect()
}

#[test]
fn a_region_never_knowingly_sends_a_reused_key() {
    let broken = [Invariant::AsksTheSame];
    assert_eq!(other_request(1, "a", false, false), broken, "its own store had the first attempt");
    assert_eq!(other_request(2, "b", true, false), broken, "its claim names the first attempt");
    assert_eq!(other_request(2, "b", false, false), [], "it cannot know of it");
    assert_eq!(other_request(9, "a", false, false), [], "its new store cannot know of it");
    assert_eq!(other_request(1, "a", false, true), []);
    assert_eq!(other_request(2, "b", true, true), []);
}

/// Two effects of a key, of which the first is settled if this says so, and promised ten minutes
/// and ten minutes of a tombstone. The second one is claimed at that second.
fn twice(settled: bool, second: u64) -> (Vec<Invariant>, u64, bool) {
    let id = key(&first());
    let lives = (Duration::from_secs(600), Duration::from_secs(1_200));
    let of_life = |write: Write| recorded(write, |record| record.lives = lives);
    let standing = if settled { Standing::Settled } else { Standing::InDoubt };
    let again = second * 1_000;
    let rows =
        [claim(10, &id, token(1, 1)), write(12, &id, token(1, 1), standing), claim(again, &id, token(1, 2))];
    let mut gone = rows.map(of_life).to_vec();
    if settled && second >= 1_188 {
        gone.insert(2, Write { record: None, ..write(again - 1, &id, token(1, 1), Standing::Tombstone) });
    }
    let effects = [sent(11, "a", &id, token(1, 1)), sent(again + 1, "a", &id, token(1, 2))];
    let mut checker = checker();
    let all = founded().into_iter().chain([writes(1, "a", gone), happens(effects)]);
    let broken: Vec<Breach> = all.flat_map(|news| checker.judge(news)).collect();
    let second = broken.iter().map(|breach| breach.invariant);
    let second = second.filter(|broken| *broken == Invariant::SecondEffectAtRisk).collect();
    (second, checker.ran_anew(), checker.doubled().contains(&id))
}

#[test]
fn only_a_forgotten_key_may_run_anew() {
    let broken = || vec![Invariant::SecondEffectAtRisk];
    assert_eq!(twice(true, 1_200), (Vec::new(), 1, false), "its life is over");
    assert_eq!(twice(true, 1_180), (broken(), 0, true), "its life is not over");
    assert_eq!(twice(false, 1_200), (broken(), 0, true), "it was never settled");
}

/// The same by two regions, of which the first one is gone with its store: its row came to the
/// second one if this says so.
fn of_another(arrived: bool) -> Vec<Invariant> {
    let id = key(&first());
    let lives = (Duration::from_secs(600), Duration::from_secs(1_200));
    let claim = |at: u64, attempt| recorded(claim(at, &id, token(1, attempt)), |record| record.lives = lives);
    let came = arrived.then(|| (origin("a"), (name("b"), id.clone(), token(1, 1))));
    let came = News { arrived: came.into_iter().collect(), ..News::default() };
    let effects = happens([sent(11, "b", &id, token(1, 1)), sent(1_200_001, "a", &id, token(1, 2))]);
    let claims = [writes(2, "b", [claim(10, 1)]), came, writes(1, "a", [claim(1_200_000, 2)])];
    let broken = after_founding(claims.into_iter().chain([effects]));
    broken.into_iter().filter(|broken| *broken == Invariant::SecondEffectAtRisk).collect()
}

#[test]
fn the_promise_excludes_doubts_known_to_lost_stores_only() {
    assert_eq!(of_another(false), []);
    assert_eq!(of_another(true), [Invariant::SecondEffectAtRisk]);
}

/// a's claim is lodged with b and takes effect, and a is lost. c runs the key again at risk of a.
/// c's gate goes through these states.
fn again(route: &str, lodged_at: &str, gates_of_c: Vec<Gated>, over: bool) -> Vec<Invariant> {
    let id = key(&first());
    let by = |write: Write, risk: &[&str], over: bool| {
        recorded(write, |record| {
            record.route = route.into();
            record.risk = risk.iter().map(|region| name(region)).collect();
            record.over = over.then(|| (origin("a"), token(1, 1))).into_iter().collect();
        })
    };
    let lodgment = Lodgment { at: ms(11), id: id.clone(), origin: origin("a"), token: token(1, 1) };
    let number = if lodged_at == "b" { 2 } else { 9 };
    let one = by(claim(10, &id, token(1, 1)), &[], false);
    let two = by(claim(100, &id, token(2, 1)), &["a"], over);
    let all = after_founding([
        stores([StoreNews { lodged: vec![lodgment], ..of_store(number, lodged_at) }]),
        writes(1, "a", [one]),
        arrives([sent(20, "a", &id, token(1, 1))]),
        happens([sent(20, "a", &id, token(1, 1))]),
        majority_accepts(2, &without_a()),
        gates(3, "c", gates_of_c),
        writes(3, "c", [two]),
        arrives([sent(110, "c", &id, token(2, 1))]),
        happens([sent(110, "c", &id, token(2, 1))]),
    ]);
    all.into_iter().filter(|broken| *broken == Invariant::OneEffectUnderEscrow).collect()
}

fn without_a() -> Arc<View> {
    lost(&first(), "a")
}

fn adopted(view: &Arc<View>, change: impl FnOnce(&mut GateState)) -> Gated {
    let mut state = GateState::founded(first()).adopt(view.clone()).open();
    change(&mut state);
    gated(50, state, &[("a", 9), ("b", 9)])
}

#[test]
fn no_key_runs_past_a_reachable_lodged_claim() {
    let broken = [Invariant::OneEffectUnderEscrow];
    let plain = || vec![adopted(&without_a(), |_| {})];
    assert_eq!(again("strict", "b", plain(), false), broken);
    assert_eq!(again("rerun", "b", plain(), false), [], "its route asks for it");
    assert_eq!(again("strict", "b", plain(), true), broken, "it is named: no risk was taken of it");
    assert_eq!(again("strict", "d", plain(), false), [], "whoever holds it is no member");
    let waived = adopted(&without_a(), |state| state.waived = [(name("a"), 2)].into());
    assert_eq!(again("strict", "b", vec![waived], false), [], "an operator accepted the risk");
    let history = vec![adopted(&without_a(), |_| {}), adopted(&lost(&without_a(), "b"), |_| {})];
    assert_eq!(again("strict", "b", history, false), [], "whoever holds it was lost, too");
    let replaced = with_member(&without_a(), 2, "b", |member| member.generation = 2);
    assert_eq!(again("strict", "b", vec![adopted(&replaced, |_| {})], false), [], "its store was replaced");
}

fn numbered(number: u32) -> KeyId {
    KeyId::new(Tenant::parse("t").unwrap(), Key::parse(&format!("m-{number}")).unwrap())
}

/// a is lost, and perhaps returns in epoch 3. Then b runs a key of this owner at risk. At the last
/// look its store had rows of a up to the epoch `heard`.
fn over(owner: &str, risk: &str, returns: bool, heard: u64) -> u64 {
    let mut checker = checker();
    let without = lost(&first(), "a");
    let again = with_member(&without, 3, "a", |member| member.standing = view::Standing::Serving);
    let epoch = if returns { 3 } else { 2 };
    let after = |id: &KeyId| without.owner(id) == Some(&name("b"));
    let is = |id: &KeyId| first().owner(id) == Some(&name(owner)) && after(id);
    let id = (0..).map(numbered).find(is).unwrap();
    let claim = recorded(claim(100, &id, token(epoch, 1)), |record| record.risk = vec![name(risk)]);
    let claims = News {
        heard: [(2, [(origin("a"), HeardOf { epoch: heard, rows: 0 })].into())].into(),
        ..writes(2, "b", [claim])
    };
    let views =
        [majority_accepts(2, &without)].into_iter().chain(returns.then(|| majority_accepts(3, &again)));
    for news in founded().into_iter().chain(views).chain([claims]) {
        checker.judge(news);
    }
    checker.marks().over
}

#[test]
fn a_risk_mark_names_a_lost_unheard_former_owner() {
    assert_eq!(over("a", "a", false, 1), 0, "a owned it, and is lost");
    assert_eq!(over("a", "a", false, 2), 0, "whoever is lost is a risk, whatever came of it");
    assert_eq!(over("a", "a", true, 1), 0, "it is back, and b has not all of its rows");
    assert_eq!(over("a", "a", true, 2), 1, "b has all rows of before its loss");
    assert_eq!(over("a", "c", false, 1), 1, "c never was lost");
    assert_eq!(over("b", "a", false, 1), 1, "a never owned it");
}

/// c is drained, and its mark says how far its rows went. Then it is lost, and b's gate may accept
/// that, or it returns. b has so many rows of it, and runs a key that c owned at first.
fn after_a_seal(waived: bool, returns: bool, rows: u64) -> u64 {
    let id = (0..).map(numbered).find(|id| first().owner(id) == Some(&name("c"))).unwrap();
    let with = |view: &View, epoch, standing| {
        with_member(view, epoch, "c", |member| (member.standing, member.mark) = (standing, 50))
    };
    let drained = with(&first(), 2, view::Standing::Sealed { drained: true });
    let gone = with(&drained, 3, view::Standing::Lost { at: 3, gap: false });
    let views = [drained, gone.clone(), with(&gone, 4, view::Standing::Serving)];
    let epoch = if returns { 4 } else { 3 };
    let state = GateState::founded(gone);
    let state = GateState { waived: waived.then(|| (name("c"), 3)).into_iter().collect(), ..state };
    let claim = recorded(claim(100, &id, token(epoch, 1)), |record| record.risk = vec![name("c")]);
    let mut checker = checker();
    let chosen = (2..=epoch).zip(&views).map(|(counter, view)| majority_accepts(counter, view));
    let news = News {
        heard: [(2, [(origin("c"), HeardOf { epoch: 1, rows })].into())].into(),
        ..writes(2, "b", [claim])
    };
    for news in founded().into_iter().chain(chosen).chain([gates(2, "b", [gated(90, state, &[])]), news]) {
        checker.judge(news);
    }
    checker.marks().over
}

#[test]
fn accepted_and_past_losses_cover_risks_before_the_seal() {
    assert_eq!(after_a_seal(true, false, 49), 0, "the gate opened without its last rows");
    assert_eq!(after_a_seal(false, true, 49), 0, "a waiver of before is gone with the loss");
    assert_eq!(after_a_seal(true, false, 50), 1, "all rows up to the seal are here");
    assert_eq!(after_a_seal(false, true, 50), 1);
    assert_eq!(after_a_seal(false, false, 49), 1, "no gate opens without them");
}
