//! The applied commits that one region's Postgres would forget if it crashed now, because they are
//! not flushed yet.
//!
//! A subscription commits without waiting for the disk (`synchronous_commit = off`). Each commit of
//! the store's own does wait, and flushes all commits applied before it. The WAL writer flushes the
//! rest a moment later.
//! These count as the store's own commits: claims and ends of attempts, heartbeats, gates, views,
//! the acceptor, lodged claims, imports, the memory of peers and the journal. The queue of jobs and
//! the list of doubts do not count, so a little more is forgotten here than by Postgres.
//! It must not forget the store's own commits. [`crate::cluster`] sends the others again.

use std::collections::VecDeque;
use std::time::Duration;

use onceway::protocol::key::KeyId;
use onceway::protocol::region::Origin;

use super::{Beaten, Change, Commit, Stored, Table};

/// The time after which the WAL writer has flushed every commit: three times its delay of 200 ms.
const WAL_WRITER: Duration = Duration::from_millis(600);

/// The previous content at the place of an applied commit.
#[derive(Clone, Debug)]
enum Before {
    Row(KeyId, Option<Box<Stored>>),
    Beat(Option<Beaten>),
}

/// A commit of another region that was applied.
#[derive(Clone, Debug)]
struct Applied {
    at: Duration,
    from: Origin,
    before: Before,
    sent: Sent,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sent {
    pub(crate) store: u64,
    /// The time of the commit, since the world began.
    pub(crate) at: Duration,
}

/// Commits that were applied and are not on the disk, oldest first.
#[derive(Clone, Debug, Default)]
pub(super) struct Unflushed(VecDeque<Applied>);

impl Table {
    /// Applies a commit of the store with this number, as an apply worker would: without a gate.
    pub(crate) fn apply(&mut self, from: &Origin, store: u64, commit: &Commit) {
        let before = match commit.change.clone() {
            Change::Row(id, row) => {
                self.history.arrived.push((from.region.clone(), id.clone(), row.token));
                self.latest.entry(from.clone()).or_default().insert(id.clone());
                let before = self.rows.entry(id.clone()).or_default().insert(from.clone(), *row);
                Before::Row(id, before.map(Box::new))
            }
            Change::Gone(id) => {
                let before = self.remove(&id, from);
                Before::Row(id, before.map(Box::new))
            }
            Change::Beat(beat) => {
                self.latest.remove(from);
                Before::Beat(self.beats.insert(from.clone(), beat))
            }
        };
        let at = self.clock.elapsed();
        let sent = Sent { store, at: commit.at };
        let Unflushed(unflushed) = &mut self.unflushed;
        while unflushed.front().is_some_and(|oldest| oldest.at + WAL_WRITER <= at) {
            unflushed.pop_front();
        }
        unflushed.push_back(Applied { at, from: from.clone(), before, sent });
    }

    /// Notes that an own commit is on the disk, and with it all commits applied before.
    pub(super) fn flushed(&mut self) {
        self.unflushed.0.clear();
    }

    /// Crashes, and returns the forgotten commits, the last applied first. It has to start anew.
    pub(crate) fn crash(&mut self) -> Vec<Sent> {
        let now = self.clock.elapsed();
        let Unflushed(unflushed) = std::mem::take(&mut self.unflushed);
        let mut forgotten = Vec::new();
        for Applied { at: _, from, before, sent } in
            unflushed.into_iter().rev().take_while(|applied| now < applied.at + WAL_WRITER)
        {
            forgotten.push(sent);
            match before {
                Before::Row(id, Some(row)) => {
                    self.rows.entry(id).or_default().insert(from, *row);
                }
                Before::Row(id, None) => {
                    self.remove(&id, &from);
                }
                Before::Beat(Some(beat)) => {
                    self.beats.insert(from, beat);
                }
                Before::Beat(None) => {
                    self.beats.remove(&from);
                }
            }
        }
        forgotten
    }
}

#[cfg(test)]
mod tests {
    use onceway::ports::store::KeyStore;
    use onceway::ports::store::Replica;
    use onceway::protocol::region::RegionName;
    use tokio::time::sleep;

    use super::*;
    use crate::store::SimStore;
    use crate::world::World;

    const WAY: Duration = Duration::from_millis(10);

    /// Two regions: the first one beats, and the second one follows it.
    struct Two {
        world: World,
        names: [RegionName; 2],
    }

    impl Two {
        async fn new() -> Self {
            let names = ["eu", "us"].map(|name| RegionName::parse(name).expect("a name"));
            let two = Self { world: World::new(1, &names, false), names };
            for one in &two.names {
                two.approve(one).await;
            }
            let [eu, us] = &two.names;
            two.world.cluster.set_delay(eu, us, WAY);
            sleep(WAY).await;
            two
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
            let beat = self.store(eu).beat().await.expect("a store").expect("an open store");
            sleep(WAY).await;
            assert_eq!(self.seen().await, beat.seq, "at {us}");
            beat.seq
        }

        /// The first region's heartbeat, as the second one has it.
        async fn seen(&self) -> u64 {
            let [eu, us] = &self.names;
            let beats = self.store(us).heartbeats().await.expect("a store");
            beats.iter().find(|beat| beat.origin.region == *eu).map_or(0, |beat| beat.seq)
        }

        fn crash(&self) {
            self.world.cluster.crash(&self.names[1]);
        }
    }

    fn play(history: impl Future<Output = ()>) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        runtime.expect("a runtime").block_on(history);
    }

    #[test]
    fn what_a_crash_forgets_is_sent_again_by_who_is_there() {
        play(async {
            let two = Two::new().await;
            let [eu, us] = &two.names;
            let beat = two.beat().await;
            two.world.cluster.hold(eu, us, true);
            two.crash();
            assert!(two.seen().await < beat);
            two.world.cluster.hold(eu, us, false);
            assert_eq!(two.seen().await, beat);
        });
    }

    #[test]
    fn what_was_on_its_way_from_a_lost_region_does_not_outlive_the_crash_of_its_reader() {
        play(async {
            let two = Two::new().await;
            let [eu, us] = &two.names;
            let beat = two.beat().await;
            two.store(eu).beat().await.expect("a store");
            two.world.cluster.sever(eu, us, Duration::ZERO);
            two.crash();
            sleep(WAY * 2).await;
            assert!(two.seen().await < beat);
        });
    }

    #[test]
    fn a_commit_of_its_own_and_the_wal_writer_put_on_the_disk_what_was_applied() {
        play(async {
            let two = Two::new().await;
            let [eu, us] = &two.names;
            let beat = two.beat().await;
            two.store(us).beat().await.expect("a store");
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
        play(async {
            let two = Two::new().await;
            let [eu, us] = &two.names;
            // Its own heartbeat is refused until its new boot is approved.
            two.world.cluster.restart(us);
            let beat = two.beat().await;
            assert_eq!(two.store(us).beat().await.expect("a store"), None);
            two.world.cluster.hold(eu, us, true);
            two.crash();
            assert!(two.seen().await < beat);
        });
    }
}
