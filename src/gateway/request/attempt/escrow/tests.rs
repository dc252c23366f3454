//! Tests of the rule that a peer's claim belongs here: each clause by itself.
//!
//! The statement that stores the claim compares the gate once more (the ports' contract). These
//! tests must not need a store.

use onceway_lab::contract::escrow::lodging_of;

use super::*;
use crate::protocol::change::Change;
use crate::protocol::examples::{abc, name as region};
use crate::protocol::key::{Key, Tenant};

fn view() -> View {
    View::founding(1, abc(), Default::default(), Default::default())
}

/// A claim that region a makes under that view, for a key whose target is region b.
fn lodging(view: &View) -> Lodging {
    let of_a = |id: &KeyId| view.owner(id) == Some(&region("a")) && view.target(id) == Some(&region("b"));
    let keys = (0..).map(|number| Key::parse(&format!("key-{number}")).unwrap());
    let ids = keys.map(|key| KeyId::new(Tenant::parse("acme").unwrap(), key));
    let token = Token { epoch: view.epoch(), attempt: 1 };
    lodging_of({ ids }.find(of_a).unwrap(), view.origin(&region("a")).unwrap(), token, Nonce(1))
}

/// The answer of region b to a claim that `from` lodges, after that change of the claim.
fn told(from: &str, change: impl FnOnce(&mut Lodging)) -> Result<(), String> {
    let view = Arc::new(view());
    let mut lodging = lodging(&view);
    change(&mut lodging);
    belongs(&GateState::founded(view), &region("b"), &region(from), &lodging)
}

#[test]
fn a_claim_belongs_at_its_keys_target() {
    assert_eq!(told("a", |_| ()), Ok(()));
}

#[test]
fn a_claim_of_another_view_does_not_belong_here() {
    for epoch in [0, 2] {
        let why = told("a", |lodging| lodging.token.epoch = epoch).unwrap_err();
        assert!(why.contains("goes by epoch 1"), "{why}");
    }
    let first = view();
    let next = GateState::founded(Arc::new(first.next(&Change::Kill).unwrap()));
    assert!(belongs(&next, &region("b"), &region("a"), &lodging(&first)).is_err());
}

/// A claim under another origin would not become a record once the sender's store is lost. Its
/// absence would then prove that nothing was sent.
#[test]
fn escrow_refuses_a_claim_of_another_store() {
    for generation in [0, 2, u32::MAX] {
        let why = told("a", |lodging| lodging.origin.generation = generation).unwrap_err();
        assert!(why.contains("of another origin"), "{why}");
    }
    let why = told("a", |lodging| lodging.origin.region = region("c")).unwrap_err();
    assert!(why.contains("of another origin"), "{why}");
    let why = told("z", |lodging| lodging.origin.region = region("z")).unwrap_err();
    assert!(why.contains("of another origin"), "no region of the view: {why}");
}

#[test]
fn escrow_refuses_a_claim_whose_sender_is_no_owner() {
    let why = told("c", |lodging| lodging.origin = view().origin(&region("c")).unwrap()).unwrap_err();
    assert!(why.contains("does not own"), "{why}");
}

#[test]
fn escrow_refuses_a_claim_for_another_target() {
    let view = Arc::new(view());
    let why = belongs(&GateState::founded(view.clone()), &region("c"), &region("a"), &lodging(&view));
    assert!(why.unwrap_err().contains("not where"));
}
