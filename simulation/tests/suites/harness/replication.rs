//! Links between two stores, and the commits that a crash of the reader forgets.
//!
//! Heartbeats show which commits arrived.

use simulation::cluster::Cluster;

use crate::shared::*;

const WAY: Duration = ms(10);
/// The time after which the WAL writer has flushed every commit.
const WAL_WRITER: Duration = ms(600);

struct Two {
    world: World,
    names: [RegionName; 2],
}

impl Two {
    async fn new() -> Self {
        let names = ["eu", "us"].map(region);
        let two = Self { world: World::new(1, &names, false), names };
        for one in &two.names {
            two.approve(one).await;
        }
        two.delay(WAY);
        sleep(WAY).await;
        two
    }

    fn delay(&self, way: Duration) {
        let [eu, us] = &self.names;
        self.world.cluster.set_delay(eu, us, way);
    }

    fn store(&self, region: &RegionName) -> SimStore {
        self.world.cluster.store(region)
    }

    async fn approve(&self, region: &RegionName) {
        let gate = self.store(region).gate().await.expect("a gate");
        self.store(region).approve(gate.version, &gate.running).await.expect("approval");
    }

    /// Sends a heartbeat of the first region, and checks that it arrives at the second.
    async fn beat(&self) -> u64 {
        let [eu, us] = &self.names;
        let beat = self.store(eu).beat(None).await.expect("a store").expect("an open store");
        sleep(WAY).await;
        assert_eq!(self.seen().await, beat.seq, "at {us}");
        beat.seq
    }

    async fn seen(&self) -> u64 {
        let [eu, us] = &self.names;
        let beats = self.store(us).heartbeats().await.expect("a store");
        beats.iter().find(|beat| beat.origin.region == *eu).map_or(0, |beat| beat.seq)
    }

    fn crash(&self) {
        self.world.cluster.crash(&self.names[1]);
    }
}

fn two_regions<T>(test: impl AsyncFnOnce(&Two, &[RegionName; 2]) -> T) -> T {
    play(async {
        let two = Two::new().await;
        test(&two, &two.names).await
    })
}

#[test]
fn a_present_sender_resends_rows_forgotten_in_a_crash() {
    two_regions(async |two, [eu, us]| {
        let beat = two.beat().await;
        two.world.cluster.hold(eu, us, true);
        two.crash();
        assert!(two.seen().await < beat);
        two.world.cluster.hold(eu, us, false);
        assert_eq!(two.seen().await, beat);
    });
}

#[test]
fn a_crash_loses_unflushed_rows_of_a_lost_region() {
    two_regions(async |two, [eu, us]| {
        let beat = two.beat().await;
        two.store(eu).beat(None).await.expect("a store");
        two.world.cluster.sever(eu, us, Duration::ZERO);
        two.crash();
        sleep(WAY * 2).await;
        assert!(two.seen().await < beat);
    });
}

#[test]
fn commits_and_the_wal_writer_flush_applied_rows() {
    two_regions(async |two, [eu, us]| {
        let beat = two.beat().await;
        two.store(us).beat(None).await.expect("a store");
        two.world.cluster.hold(eu, us, true);
        two.crash();
        assert_eq!(two.seen().await, beat, "a heartbeat of its own came after it");

        two.world.cluster.hold(eu, us, false);
        let beat = two.beat().await;
        two.world.cluster.hold(eu, us, true);
        sleep(WAL_WRITER).await;
        two.crash();
        assert_eq!(two.seen().await, beat, "the WAL writer has run");
    });
}

#[test]
fn a_statement_that_writes_nothing_flushes_nothing() {
    two_regions(async |two, [eu, us]| {
        // Its own heartbeat is refused until its new boot is approved.
        two.world.cluster.restart(us);
        let beat = two.beat().await;
        assert_eq!(two.store(us).beat(None).await.expect("a store"), None);
        two.world.cluster.hold(eu, us, true);
        two.crash();
        assert!(two.seen().await < beat);
    });
}

/// An act on the link at a time, in milliseconds since it began.
type Act = (u64, fn(&Cluster, &RegionName, &RegionName));

/// The commits that the second region has, at each of these times: all up to that time. The first
/// one beats each 20 ms. Commits arrive at once for 100 ms, and then they take 40 ms.
fn reached<const N: usize>(acts: &[Act], looks: [u64; N]) -> [u64; N] {
    two_regions(async |two, [eu, us]| {
        two.delay(Duration::ZERO);
        let begun = two.world.elapsed();
        let (mut beats, mut reached) = (BTreeMap::new(), BTreeMap::new());
        for at in (0..=500).step_by(20).chain([9_000]) {
            sleep((begun + ms(at)).saturating_sub(two.world.elapsed())).await;
            beats.insert(two.store(eu).beat(None).await.expect("a store").expect("an open store").seq, at);
            if at == 100 {
                two.delay(ms(40));
            }
            acts.iter().filter(|(when, _)| *when == at).for_each(|(_, act)| act(&two.world.cluster, eu, us));
            if looks.contains(&at) {
                reached.insert(at, beats[&two.seen().await]);
            }
        }
        looks.map(|look| reached[&look])
    })
}

fn held(cluster: &Cluster, from: &RegionName, to: &RegionName) {
    cluster.hold(from, to, true);
}

fn lost(cluster: &Cluster, from: &RegionName, to: &RegionName) {
    cluster.sever(from, to, Duration::ZERO);
}

fn stalled(cluster: &Cluster, from: &RegionName, to: &RegionName) {
    cluster.stall(from, to, true);
}

#[test]
fn a_link_brings_what_is_due_and_never_goes_back() {
    assert_eq!(reached(&[], [120, 140, 500]), [100, 100, 460]);
}

#[test]
fn a_lost_link_drains_and_a_held_one_stops() {
    assert_eq!(reached(&[(100, held)], [500]), [100]);
    assert_eq!(reached(&[(300, lost)], [300, 340, 9_000]), [260, 300, 300]);
}

#[test]
fn nothing_passes_a_large_transaction() {
    assert_eq!(reached(&[(100, stalled)], [500]), [100]);
    assert_eq!(reached(&[(100, stalled), (300, lost)], [500]), [100]);
}
