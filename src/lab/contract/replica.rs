//! The promises of [`Replica`] of one store; [`super::replication`] has those between stores.

use super::bench::*;
use onceway_ports::store::PeerMemory;
use onceway_protocol::observed::{Observed, Passed};

pub async fn suite(bench: &impl StoreBench) {
    heartbeats_grow_by_one(bench).await;
    a_heartbeat_counts_what_passed_once(bench).await;
    the_own_heartbeat_is_shown(bench).await;
    the_memory_of_peers_survives_a_restart(bench).await;
}

async fn heartbeats_grow_by_one(bench: &impl StoreBench) {
    open(bench).await;
    let first = beats(bench).await.seq;
    for step in 1..=3 {
        let next = beats(bench).await.seq;
        assert_eq!(next, first + step, "replica: beat {step} after {first} must be {}", first + step);
    }
    restart_and_approve(bench).await;
    assert_eq!(own_heartbeat(bench).await.seq, first + 3, "replica: a restart changed the heartbeat");
    assert_eq!(beats(bench).await.seq, first + 4, "replica: the heartbeat must go on after a restart");
}

/// A heartbeat counts what passed, in one statement with its number: from the value that its writer
/// knows, and no more than the one before allowed.
async fn a_heartbeat_counts_what_passed_once(bench: &impl StoreBench) {
    open(bench).await;
    let (step, more) = (Duration::from_millis(400), Duration::from_millis(900));
    let counts = async |from: Option<Observed>, by: Duration| {
        let beat = bench.store().beat(Some(Passed { from, by, step })).await.expect("replica: beat failed");
        let beat = beat.expect("replica: an open gate");
        (beat.observed, beat.counted)
    };
    let (first, counted) = counts(None, more).await;
    assert!(!counted, "replica: it does not know where the counter stands");
    let after = |millis: u64| Observed(first.0 + millis);
    assert_eq!(counts(Some(first), Duration::from_millis(250)).await, (after(250), true));
    assert_eq!(counts(Some(first), more).await, (after(250), false), "replica: another gateway counted");
    assert_eq!(counts(Some(after(250)), more).await, (after(650), true), "replica: one step at most");
    let other = beats(bench).await;
    assert_eq!((other.observed, other.counted), (after(650), false), "replica: it counts nothing");
    assert_eq!(counts(Some(after(650)), more).await, (after(1_050), true), "replica: it allowed no less");
    // What began before a heartbeat ends no earlier for it.
    let hold = Duration::from_millis(300);
    let mut ask = asks(bench, &id(bench, "counted"), 1).await;
    ask.terms.hold = hold;
    let attempt = wins(bench, &ask).await.0;
    let (now, _) = counts(Some(after(1_050)), more).await;
    assert!(left(bench, &attempt.id).await == Some(hold), "replica: the step is added to the hold");
    counts(Some(now), Duration::from_millis(299)).await;
    assert!(left(bench, &attempt.id).await == Some(Duration::from_millis(1)));
    counts(Some(Observed(now.0 + 299)), Duration::from_millis(1)).await;
    assert!(left(bench, &attempt.id).await == Some(Duration::ZERO), "replica: it is over to the millisecond");
    restart_and_approve(bench).await;
    let (kept, _) = counts(None, more).await;
    assert_eq!(kept, Observed(now.0 + 300), "replica: a restart neither moves nor loses it");
    bench.store().beat(Some(Passed { from: None, by: more, step: Duration::ZERO })).await.expect("a beat");
}

async fn left(bench: &impl StoreBench, id: &KeyId) -> Option<Duration> {
    match row(bench, id).await.state {
        State::Claimed { left, .. } => Some(left),
        State::InDoubt { .. } | State::Released | State::Settled { .. } | State::Tombstone => None,
    }
}

async fn the_own_heartbeat_is_shown(bench: &impl StoreBench) {
    let gate = open(bench).await;
    let seq = beats(bench).await.seq;
    let own = own_heartbeat(bench).await;
    let date = own.date;
    let want = Heartbeat { origin: bench.origin(), seq, epoch: gate.epoch, whole: true, date };
    assert_eq!(own, want, "replica: the own heartbeat must be shown as committed");
    let next = beats(bench).await;
    assert!(date <= next.date, "replica: {date:?} is before {next:?}");
    assert_eq!(own_heartbeat(bench).await.date, next.date, "replica: it must be shown with its date");
}

/// The memory of peers is recalled after a restart, and the newest memory of a peer counts. But two
/// gateways of a region may remember in any order: a smaller heartbeat replaces no greater one.
async fn the_memory_of_peers_survives_a_restart(bench: &impl StoreBench) {
    open(bench).await;
    let peers = bench.peers();
    assert!(!peers.is_empty(), "bench: at least one peer is needed");
    let mut memory: Vec<PeerMemory> = peers
        .iter()
        .zip([None, Some(Duration::from_millis(1_250))].into_iter().cycle())
        .map(|(origin, lag)| PeerMemory { origin: origin.clone(), applied: 7, lag, imported: 0 })
        .collect();
    remember(bench, &memory).await;
    assert_eq!(recall(bench).await, memory, "replica: recalled something else than was remembered");
    for (at, memory) in memory.iter_mut().enumerate() {
        memory.applied = 1 << 40;
        memory.lag = Some(Duration::from_millis(at as u64 * 86_400_000));
    }
    remember(bench, &memory).await;
    assert_eq!(recall(bench).await, memory, "replica: the newest memory must count");
    restart_and_approve(bench).await;
    assert_eq!(recall(bench).await, memory, "replica: a restart lost what was remembered");
    memory.iter_mut().for_each(|memory| (memory.applied, memory.lag) = (1 << 20, Some(SHORT)));
    remember(bench, &memory).await;
    memory.iter_mut().for_each(|memory| memory.applied = 1 << 40);
    assert_eq!(recall(bench).await, memory, "replica: a remembered heartbeat went back");
}

calls! { StoreBench:
    remember = remember(memory: &[PeerMemory]) -> ();
    recalled = recall() -> Vec<PeerMemory>;
}

async fn recall(bench: &impl StoreBench) -> Vec<PeerMemory> {
    let all = recalled(bench).await;
    let of = |origin| all.iter().filter(move |memory| memory.origin == origin).cloned();
    bench.peers().into_iter().flat_map(of).collect()
}
