//! A key that took effect again after its life was over is a new one. A key in doubt has no such
//! end, unless nobody could know of it.
//!
//! [`super`] forges the histories.

use super::*;

/// Two effects of a key, of which the first is settled if this says so, and promised ten minutes
/// and ten minutes of a tombstone. The second one is claimed at that second.
fn twice(settled: bool, second: u64) -> (Vec<Invariant>, u64, bool) {
    let id = key(&first());
    let lives = (Duration::from_secs(600), Duration::from_secs(1_200));
    let of_life = |write: Write| recorded(write, |record| record.lives = lives);
    let standing = if settled { Standing::Settled } else { Standing::InDoubt };
    let again = second * 1_000;
    let rows = [
        write(10, &id, token(1, 1), Standing::Claimed),
        write(12, &id, token(1, 1), standing),
        write(again, &id, token(1, 2), Standing::Claimed),
    ];
    let mut gone = rows.map(of_life).to_vec();
    if settled && second >= 1_188 {
        gone.insert(2, Write { record: None, ..write(again - 1, &id, token(1, 1), Standing::Tombstone) });
    }
    let effects = [sent(11, "a", &id, token(1, 1)), sent(again + 1, "a", &id, token(1, 2))];
    let mut checker = Checker::new([Arc::from("rerun")].into(), RULE);
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
    let claim = |at: u64, attempt| {
        let claim = write(at, &id, token(1, attempt), Standing::Claimed);
        recorded(claim, |record| record.lives = lives)
    };
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
