//! Forged histories of keys under escrow that run twice, where lodged claims could have been asked
//! for.
//!
//! [`super`] forges everything.

use super::*;

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
    let one = by(write(10, &id, token(1, 1), Standing::Claimed), &[], false);
    let two = by(write(100, &id, token(2, 1), Standing::Claimed), &["a"], over);
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
    let without_both = lost(&without_a(), "b");
    let history = vec![adopted(&without_a(), |_| {}), adopted(&without_both, |_| {})];
    assert_eq!(again("strict", "b", history, false), [], "whoever holds it was lost, too");
    let mut content: Content = without_a().content();
    content.members.entry(name("b")).and_modify(|member| member.generation = 2);
    let replaced = Arc::new(View::from_content(content));
    assert_eq!(again("strict", "b", vec![adopted(&replaced, |_| {})], false), [], "its store was replaced");
}
