//! Forged histories of runs at risk: which marks are earned.
//!
//! [`super`] forges everything else. This file must not need a gateway.

use onceway::protocol::view;
use simulation::checker::Marks;
use simulation::table::HeardOf;

use super::*;

fn numbered(number: u32) -> KeyId {
    KeyId::new(Tenant::parse("t").unwrap(), Key::parse(&format!("m-{number}")).unwrap())
}

/// Keys that this region owns while all serve, and b once a is lost.
fn keys_of(owner: &str) -> impl Iterator<Item = KeyId> {
    let (view, after) = (first(), lost(&first(), "a"));
    let is = move |id: &KeyId| view.owner(id) == Some(&name(owner)) && after.owner(id) == Some(&name("b"));
    (0..).map(numbered).filter(is)
}

/// a is lost, and perhaps returns in epoch 3. Then b runs so many keys of this owner at risk. At
/// the last look its store had rows of a up to the epoch `heard`.
fn marked(owner: &str, risk: &str, returns: bool, heard: u64, runs: usize) -> (Marks, Vec<Invariant>) {
    let mut checker = Checker::new(BTreeSet::new(), RULE);
    let without = lost(&first(), "a");
    let mut content: Content = without.content();
    content.epoch = 3;
    content.members.entry(name("a")).and_modify(|member| member.standing = view::Standing::Serving);
    let again = Arc::new(View::from_content(content));
    let epoch = if returns { 3 } else { 2 };
    let claims = keys_of(owner).take(runs).map(|id| {
        recorded(claim(100, &id, token(epoch, 1)), |record| {
            record.risk = vec![name(risk)];
        })
    });
    let claims = News {
        heard: [(2, [(origin("a"), HeardOf { epoch: heard, rows: 0 })].into())].into(),
        ..writes(2, "b", claims.collect::<Vec<_>>())
    };
    let views =
        [majority_accepts(2, &without)].into_iter().chain(returns.then(|| majority_accepts(3, &again)));
    for news in founded().into_iter().chain(views).chain([claims]) {
        checker.judge(news);
    }
    (checker.marks().clone(), ended(&checker, &BTreeMap::new(), Vec::new()))
}

#[test]
fn a_risk_mark_names_a_lost_unheard_former_owner() {
    let over = |owner, risk, returns, heard| marked(owner, risk, returns, heard, 1).0.over;
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
    let with = |view: &View, standing, mark| {
        let mut content: Content = view.content();
        content.epoch += 1;
        let member = |member: &mut view::Member| (member.standing, member.mark) = (standing, mark);
        content.members.entry(name("c")).and_modify(member);
        Arc::new(View::from_content(content))
    };
    let drained = with(&first(), view::Standing::Sealed { drained: true }, 50);
    let gone = with(&drained, view::Standing::Lost { at: 3, gap: false }, 50);
    let again = with(&gone, view::Standing::Serving, 50);
    let views = [drained, gone.clone(), again];
    let epoch = if returns { 4 } else { 3 };
    let state = GateState::founded(gone);
    let state = GateState { waived: waived.then(|| (name("c"), 3)).into_iter().collect(), ..state };
    let claim = recorded(claim(100, &id, token(epoch, 1)), |record| {
        record.risk = vec![name("c")];
    });
    let mut checker = Checker::new(BTreeSet::new(), RULE);
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
    let (accepted, over) = ((true, false), (false, true));
    assert_eq!(after_a_seal(accepted.0, accepted.1, 49), 0, "the gate opened without its last rows");
    assert_eq!(after_a_seal(over.0, over.1, 49), 0, "a waiver of before is gone with the loss");
    assert_eq!(after_a_seal(accepted.0, accepted.1, 50), 1, "all rows up to the seal are here");
    assert_eq!(after_a_seal(over.0, over.1, 50), 1);
    assert_eq!(after_a_seal(false, false, 49), 1, "no gate opens without them");
}
