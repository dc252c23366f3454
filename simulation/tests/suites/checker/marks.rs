//! Forged histories of runs at risk: which marks are earned.

use onceway::protocol::view;
use simulation::table::HeardOf;

use super::*;

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
    let again = with(&gone, 4, view::Standing::Serving);
    let views = [drained, gone.clone(), again];
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
    let gate = gates(2, "b", [gated(90, state, &[])]);
    for news in founded().into_iter().chain(chosen).chain([gate, news]) {
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
