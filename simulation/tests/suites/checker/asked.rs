//! Sends of a key ask the same each time, as far as earlier attempts were known.
//!
//! [`super`] forges the histories.

use super::*;

/// The second attempt of a key, which asks for something else. It is claimed in this store of this
/// region. a's first attempt was claimed in store 1.
fn twice(store: u64, region: &str, named: bool, same: bool) -> Vec<Invariant> {
    let id = key(&first());
    let second = recorded(write(20, &id, token(1, 2), Standing::Claimed), |record| {
        record.over = named.then(|| (origin("a"), token(1, 1))).into_iter().collect();
        // It ran at risk, so other invariants do not matter here.
        record.risk = vec![name("a")];
    });
    let claims =
        [writes(1, "a", [write(10, &id, token(1, 1), Standing::Claimed)]), writes(store, region, [second])];
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
    assert_eq!(twice(1, "a", false, false), broken, "its own store had the first attempt");
    assert_eq!(twice(2, "b", true, false), broken, "its claim names the first attempt");
    assert_eq!(twice(2, "b", false, false), [], "it cannot know of it");
    assert_eq!(twice(9, "a", false, false), [], "its new store cannot know of it");
    assert_eq!(twice(1, "a", false, true), []);
    assert_eq!(twice(2, "b", true, true), []);
}
