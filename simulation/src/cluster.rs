//! All regions' stores and the replication between them: per pair, asynchronous, in commit order.
//!
//! Neighbours: [`crate::table`] is one region's Postgres, [`crate::store`] the port to it. A link ships lazily: whoever reads a store
//! first lets everything arrive that is due by then, so that no task is needed and nothing depends on when one runs. It must
//! not lose or reorder commits of a link: native replication does not either.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use onceway::ports::store::Subscription;
use onceway::protocol::authority::GateState;
use onceway::protocol::region::{Origin, RegionName};
use onceway::protocol::register::Ballot;
use onceway::protocol::view::{AcceptorId, View};

use crate::clock::SimClock;
use crate::store::SimStore;
use crate::table::{Change, Snapshot, Table, Truth};

/// What a region's store does with the statements of its gateways.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StoreMode {
    /// Executes and answers.
    #[default]
    Up,
    /// Refuses connections: nothing was written, surely.
    Refuse,
    /// Does not answer: after this long the caller gives up. Nothing was written, but the caller cannot know.
    Stall(Duration),
    /// Executes, and the reply is lost: after this long the caller gives up. It was written, but the caller cannot know.
    LoseReplies(Duration),
}

/// A copy of one region's data.
#[derive(Clone, Debug)]
pub struct Copied(Table);

impl Copied {
    /// The region's last heartbeat that is in it.
    pub fn heartbeat(&self) -> u64 {
        self.0.last_beat()
    }
}

/// One direction of replication between two regions.
#[derive(Clone, Debug, Default)]
struct Link {
    shipped: usize,
    delay: Duration,
    held: bool,
    /// Its publisher was lost: what was committed by then had left it, and is applied all the same.
    left: Option<Duration>,
    /// Nothing is applied behind a large transaction.
    stalled: bool,
    /// Everything that was committed by then is applied.
    reached: Duration,
    slot: Slot,
}

impl Link {
    /// Lets everything arrive that is due.
    fn advance(&mut self, now: Duration) {
        let due = now.saturating_sub(self.delay);
        let arrives = match (self.stalled, self.held, self.left) {
            (true, ..) | (false, true, None) => return,
            (false, true, Some(left)) => due.min(left),
            (false, false, _) => due,
        };
        self.reached = self.reached.max(arrives);
    }
}

/// What the publisher keeps for a subscriber, as measured with Postgres.
#[derive(Clone, Debug, Default)]
enum Slot {
    /// All that is not shipped yet.
    #[default]
    Kept,
    /// Nothing any more: no row comes, and the subscription says of itself only that it does not stream.
    Lost,
    /// It was made anew, and the first copy of the records runs. Heartbeats have been copied, and
    /// come as they are written.
    Copying(Box<Copy>),
}

/// The first copy of a publisher's records.
#[derive(Clone, Debug)]
struct Copy {
    /// It is whole once everything that was committed by then has arrived.
    due: Duration,
    /// The records as they were when it began.
    records: Snapshot,
    /// The part of the publisher's log that is in them.
    begun: usize,
    /// Where in that log its last heartbeat of then is.
    beats: usize,
}

#[derive(Debug)]
struct Region {
    clock: SimClock,
    table: Table,
    mode: StoreMode,
    latency: Duration,
    /// How much later than written the sender of a claim hears of it.
    confirms: Duration,
}

#[derive(Debug, Default)]
struct Inner {
    regions: BTreeMap<RegionName, Region>,
    /// By who is replicated to, and from whom.
    links: BTreeMap<RegionName, BTreeMap<RegionName, Link>>,
    /// How many stores were ever made.
    made: u64,
    /// Stores that were destroyed, as they were then: for checkers.
    buried: Vec<Table>,
    /// Statements executed, and commits that were applied from another region.
    events: u64,
}

/// The stores of all regions. Cheap to clone; all clones are the same cluster. A region that was never added panics: a
/// scenario's mistake.
#[derive(Clone, Debug, Default)]
pub struct Cluster(Arc<Mutex<Inner>>);

impl Cluster {
    /// Adds a region with an empty store, replicated to and from all others without delay.
    pub fn add(&self, origin: Origin, clock: SimClock) {
        let mut inner = self.lock();
        let name = origin.region.clone();
        let others: Vec<RegionName> = inner.regions.keys().cloned().collect();
        for other in others {
            inner.links.entry(other.clone()).or_default().insert(name.clone(), Link::default());
            inner.links.entry(name.clone()).or_default().insert(other, Link::default());
        }
        let mut table = inner.make(origin, &clock);
        table.provisioned();
        let (mode, latency, confirms) = (StoreMode::Up, Duration::ZERO, Duration::ZERO);
        let region = Region { clock, table, mode, latency, confirms };
        inner.regions.insert(name, region);
    }

    /// The port to a region's store.
    pub fn store(&self, region: &RegionName) -> SimStore {
        SimStore::new(self.clone(), region.clone())
    }

    /// The origin under which a region writes.
    pub fn origin(&self, region: &RegionName) -> Origin {
        self.lock().region(region).table.origin().clone()
    }

    /// A region's Postgres is killed, and starts at once: nothing that it committed is gone, but what it had applied of others and nothing had
    /// flushed yet. Who is there sends it again.
    pub fn crash(&self, region: &RegionName) {
        self.kill(region);
        self.set_mode(region, StoreMode::Up);
        self.restart(region);
    }

    /// The same, but it refuses connections until it is let answer and restarted.
    pub fn kill(&self, region: &RegionName) {
        let mut inner = self.lock();
        inner.catch_up(region);
        inner.forget_unflushed(region);
        inner.region(region).mode = StoreMode::Refuse;
    }

    /// Restarts a region's Postgres as `pg_ctl restart` does: same data, a new boot.
    pub fn restart(&self, region: &RegionName) {
        let mut inner = self.lock();
        inner.catch_up(region);
        inner.region(region).table.restart();
    }

    /// A standby takes the place of a region's Postgres: it has everything, which nobody can tell from it.
    pub fn promote(&self, region: &RegionName) {
        let mut inner = self.lock();
        inner.catch_up(region);
        inner.region(region).table.promote();
    }

    /// Steps the wall clock of a region's Postgres, ahead or back.
    pub fn step_clock(&self, region: &RegionName, micros: i64) {
        self.lock().region(region).clock.step(micros);
    }

    /// The state of a region's gate, as its store holds it; `None` before the founding.
    pub fn gate(&self, region: &RegionName) -> Option<GateState> {
        self.lock().region(region).table.gate().state
    }

    /// What a region's journal says about no key, oldest first.
    pub fn notes(&self, region: &RegionName) -> Vec<onceway::ports::upkeep::Entry> {
        self.lock().region(region).table.notes()
    }

    /// A copy of a region's data, as a backup would take it.
    pub fn copy(&self, region: &RegionName) -> Copied {
        let mut inner = self.lock();
        inner.catch_up(region);
        Copied(inner.region(region).table.clone())
    }

    /// Restarts a region's Postgres over an older copy of its data: what it wrote since then is forgotten here, not where it had
    /// arrived, and what had arrived here since then does not come again.
    pub fn restore(&self, region: &RegionName, copied: Copied) {
        let mut inner = self.lock();
        inner.catch_up(region);
        inner.region(region).table.restore(copied.0);
        inner.tell_copies(region);
    }

    /// Destroys a region's store with all that has not reached the others by now. It refuses connections until it is rebuilt.
    pub fn destroy(&self, region: &RegionName) {
        let mut inner = self.lock();
        let others: Vec<RegionName> =
            inner.regions.keys().filter(|other| *other != region).cloned().collect();
        for other in &others {
            inner.catch_up(other);
        }
        let (origin, clock) = {
            let lost = inner.region(region);
            (lost.table.origin().clone(), lost.clock.clone())
        };
        let empty = inner.make(origin, &clock);
        let lost = inner.region(region);
        lost.mode = StoreMode::Refuse;
        let buried = std::mem::replace(&mut lost.table, empty);
        inner.buried.push(buried);
        inner.ship_from_the_start(region);
    }

    /// Sets up an empty store of this generation in place of a destroyed one; it copies what the others' stores hold.
    pub fn rebuild(&self, region: &RegionName, generation: u32) {
        self.rebuild_within(region, generation, Duration::ZERO);
    }

    /// The same, and the first copy of each other store's records takes so long. Their heartbeats
    /// come at once.
    pub fn rebuild_within(&self, region: &RegionName, generation: u32, takes: Duration) {
        let mut inner = self.lock();
        let lost = inner.region(region);
        let (clock, before) = (lost.clock.clone(), lost.table.origin().clone());
        let mut empty = inner.make(Origin { region: region.clone(), generation }, &clock);
        empty.provisioned();
        let lost = inner.region(region);
        lost.table = empty;
        lost.mode = StoreMode::Up;
        inner.ship_from_the_start(region);
        let others: Vec<RegionName> =
            inner.regions.keys().filter(|other| *other != region).cloned().collect();
        for other in &others {
            inner.region(other).table.leaves(&before);
            inner.begin_copy(other, region, takes);
        }
    }

    /// The acceptors of all stores.
    pub fn acceptors(&self) -> BTreeMap<RegionName, AcceptorId> {
        let inner = self.lock();
        let ids = inner.regions.iter().map(|(name, region)| (name.clone(), region.table.acceptor().1.id));
        ids.collect()
    }

    /// Brings every store to where the founding of the register leaves it.
    pub(crate) fn found(&self, ballot: &Ballot, view: &Arc<View>) {
        for region in self.lock().regions.values_mut() {
            region.table.found(ballot, view);
        }
    }

    /// All that there is to know about every store there ever was, destroyed ones first: with what has arrived by its last statement.
    pub fn truths(&self) -> Vec<Truth> {
        let inner = self.lock();
        let live = inner.regions.values().map(|region| &region.table);
        inner.buried.iter().chain(live).map(Table::truth).collect()
    }

    /// Shows every store there ever was, destroyed ones first.
    pub(crate) fn each_table(&self, mut look: impl FnMut(&Table)) {
        let inner = self.lock();
        inner.buried.iter().chain(inner.regions.values().map(|region| &region.table)).for_each(&mut look);
    }

    /// Switches how a region's store treats statements, from the next one on.
    pub fn set_mode(&self, region: &RegionName, mode: StoreMode) {
        self.lock().region(region).mode = mode;
    }

    /// Sets how long a statement takes there and back.
    pub fn set_latency(&self, region: &RegionName, latency: Duration) {
        self.lock().region(region).latency = latency;
    }

    /// Sets how much later than written the sender of a claim hears of it, for claims that are sent from now on.
    pub fn set_confirms(&self, region: &RegionName, later: Duration) {
        self.lock().region(region).confirms = later;
    }

    pub(crate) fn confirms(&self, region: &RegionName) -> Duration {
        self.lock().region(region).confirms
    }

    /// Sets how long commits of `from` take to `to`; those that were due before have arrived.
    pub fn set_delay(&self, from: &RegionName, to: &RegionName, delay: Duration) {
        let mut inner = self.lock();
        inner.catch_up(to);
        inner.link(from, to).delay = delay;
    }

    /// Holds the link from `from` to `to`, or lets it go: what was held then arrives as it was due.
    pub fn hold(&self, from: &RegionName, to: &RegionName, held: bool) {
        let mut inner = self.lock();
        inner.catch_up(to);
        let link = inner.link(from, to);
        (link.held, link.left) = (held, None);
    }

    /// Ends the link from `from` to `to` as the loss of `from` does, until it is let go: what had arrived is still applied as it was due,
    /// and what was on its way for less than `on_its_way` is not.
    pub fn sever(&self, from: &RegionName, to: &RegionName, on_its_way: Duration) {
        let mut inner = self.lock();
        inner.catch_up(to);
        let now = inner.region(from).clock.elapsed();
        let link = inner.link(from, to);
        (link.held, link.left) = (true, Some(now.saturating_sub(on_its_way)));
    }

    /// Lets everything from `from` wait at `to`, as behind a large transaction that is applied, or lets it go: then all comes at once.
    pub fn stall(&self, from: &RegionName, to: &RegionName, stalled: bool) {
        let mut inner = self.lock();
        inner.catch_up(to);
        inner.link(from, to).stalled = stalled;
    }

    /// Up to when everything that was committed at `from` is applied at `to`, by the world's time: what else is stored in a region and
    /// replicated is carried so far, too.
    pub(crate) fn reached(&self, from: &RegionName, to: &RegionName) -> Duration {
        let mut inner = self.lock();
        inner.catch_up(to);
        inner.link(from, to).reached
    }

    /// How the store of `region` treats the next statement, and how long that takes.
    pub(crate) fn manners(&self, region: &RegionName) -> (StoreMode, Duration) {
        let mut inner = self.lock();
        let region = inner.region(region);
        (region.mode, region.latency)
    }

    /// Executes one statement on a region's store, with everything applied that is due.
    pub(crate) fn execute<T>(&self, region: &RegionName, statement: impl FnOnce(&mut Table) -> T) -> T {
        let mut inner = self.lock();
        inner.events += 1;
        inner.catch_up(region);
        statement(&mut inner.region(region).table)
    }

    /// Statements that were executed so far, and commits that were applied from another region.
    pub(crate) fn events(&self) -> u64 {
        self.lock().events
    }

    /// The slot of `to` at `from` is lost, with all that had not arrived: it held back more than the publisher keeps, or the publisher failed
    /// over to a standby.
    pub fn lose_slot(&self, from: &RegionName, to: &RegionName) {
        let mut inner = self.lock();
        inner.catch_up(to);
        inner.link(from, to).slot = Slot::Lost;
    }

    /// `to` follows `from` anew, as `onceway store reseed` does, if its slot is lost still: what is
    /// there stays as imported rows, and all that the publisher has now is copied once this time is
    /// over. Heartbeats come at once, the one of now first.
    pub fn reseed(&self, from: &RegionName, to: &RegionName, takes: Duration) {
        let mut inner = self.lock();
        if !matches!(inner.link(from, to).slot, Slot::Lost) {
            return;
        }
        inner.catch_up(from);
        inner.catch_up(to);
        let origin = inner.region(from).table.origin().clone();
        inner.region(to).table.reseed(&origin);
        inner.begin_copy(from, to, takes);
    }

    /// Whether a region's store executes statements.
    pub fn is_up(&self, region: &RegionName) -> bool {
        self.lock().region(region).mode == StoreMode::Up
    }

    pub(crate) fn subscriptions(&self, to: &RegionName) -> Vec<Subscription> {
        let inner = self.lock();
        let Some(reader) = inner.regions.get(to) else { return Vec::new() };
        let incoming = inner.links.get(to).into_iter().flatten();
        let ready = |from| {
            let publisher = inner.regions.get(from).map(|publisher| publisher.table.origin());
            publisher.is_some_and(|origin| !reader.table.is_copying(origin))
        };
        let shown = incoming.map(|(from, link)| Subscription {
            from: from.to_string(),
            ready: ready(from),
            streaming: !link.held && !matches!(link.slot, Slot::Lost),
        });
        shown.collect()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn make(&mut self, origin: Origin, clock: &SimClock) -> Table {
        self.made += 1;
        Table::new(origin, self.made, clock.clone())
    }

    fn region(&mut self, name: &RegionName) -> &mut Region {
        self.regions.get_mut(name).unwrap_or_else(|| panic!("no region {name} in this cluster: add it first"))
    }

    fn link(&mut self, from: &RegionName, to: &RegionName) -> &mut Link {
        let link = self.links.get_mut(to).and_then(|incoming| incoming.get_mut(from));
        link.unwrap_or_else(|| panic!("no link from {from} to {to}: add both regions"))
    }

    /// A store that is new has nothing of the others', and its log is new to them.
    fn ship_from_the_start(&mut self, region: &RegionName) {
        for (to, incoming) in &mut self.links {
            let touched = incoming.iter_mut().filter(|(from, _)| *from == region || to == region);
            touched.for_each(|(_, link)| (link.shipped, link.slot) = (0, Slot::Kept));
        }
    }

    /// A store that is another one now knows which first copies run.
    fn tell_copies(&mut self, to: &RegionName) {
        let incoming = self.links.get(to).into_iter().flatten();
        let run: Vec<(RegionName, bool)> =
            incoming.map(|(from, link)| (from.clone(), matches!(link.slot, Slot::Copying(_)))).collect();
        for (from, runs) in run {
            let origin = self.region(&from).table.origin().clone();
            self.region(to).table.copies(&origin, runs);
        }
    }

    /// Applies at `to` every commit that is due, each link's in its own order.
    fn catch_up(&mut self, to: &RegionName) {
        let Self { regions, links, made: _, buried: _, events } = self;
        let (mut due, mut copied) = (Vec::new(), Vec::new());
        for (from, link) in links.get_mut(to).into_iter().flatten() {
            let Some(publisher) = regions.get(from) else { continue };
            link.advance(publisher.clock.elapsed());
            let (origin, log) = (publisher.table.origin(), publisher.table.log());
            match &link.slot {
                Slot::Kept => {}
                Slot::Lost => continue,
                Slot::Copying(copy) if link.reached < copy.due => {}
                Slot::Copying(_) => {
                    if let Slot::Copying(copy) = std::mem::take(&mut link.slot) {
                        let since = log.get(copy.begun..link.shipped).unwrap_or_default().to_vec();
                        copied.push((origin.clone(), copy.records, since));
                    }
                }
            }
            let log = &log[link.shipped..];
            if log.first().is_none_or(|first| first.at > link.reached) {
                continue;
            }
            let mut fresh: Vec<_> =
                log.iter().take_while(|commit| commit.at <= link.reached).cloned().collect();
            link.shipped += fresh.len();
            if matches!(link.slot, Slot::Copying(_)) {
                // Of the table that is being copied its copier brings the changes, at the end.
                fresh.retain(|commit| matches!(commit.change, Change::Beat { .. }));
            }
            *events += fresh.len() as u64;
            due.push((origin.clone(), publisher.table.number(), fresh));
        }
        if due.is_empty() && copied.is_empty() {
            return;
        }
        let table = &mut self.region(to).table;
        for (origin, records, since) in copied {
            table.copied(&origin, records, &since);
        }
        for (origin, store, commits) in due {
            commits.iter().for_each(|commit| table.apply(&origin, store, commit));
        }
    }

    /// The slot is made anew, and the first copy of the records begins. Heartbeats come beside it,
    /// from the last one on.
    fn begin_copy(&mut self, from: &RegionName, to: &RegionName, takes: Duration) {
        let publisher = self.region(from);
        let (origin, log) = (publisher.table.origin().clone(), publisher.table.log());
        let beats = log.iter().rposition(|commit| matches!(commit.change, Change::Beat { .. }));
        let (begun, beats) = (log.len(), beats.unwrap_or(log.len()));
        let (due, records) = (publisher.clock.elapsed() + takes, publisher.table.snapshot());
        self.region(to).table.copies(&origin, true);
        let link = self.link(from, to);
        (link.shipped, link.slot) = (beats, Slot::Copying(Box::new(Copy { due, records, begun, beats })));
    }

    /// Takes back what a crash of the store at `to` forgets. What was on its way there is gone with the connection: it is sent again by who is
    /// there to send it.
    fn forget_unflushed(&mut self, to: &RegionName) {
        let forgotten = self.region(to).table.crash();
        let Self { regions, links, made: _, buried: _, events: _ } = self;
        for (from, link) in links.get_mut(to).into_iter().flatten() {
            link.left = None;
            let Some(publisher) = regions.get(from).map(|region| region.table.number()) else { continue };
            // Of a store that another one took the place of, nothing is sent any more.
            for sent in forgotten.iter().filter(|sent| sent.store == publisher) {
                match &link.slot {
                    // Of what was skipped meanwhile nothing can be forgotten: heartbeats come once
                    // more from where the copy began.
                    Slot::Copying(copy) => link.shipped = copy.beats,
                    Slot::Kept | Slot::Lost => link.shipped -= 1,
                }
                link.reached = link.reached.min(sent.at.saturating_sub(Duration::from_nanos(1)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn reached(link: &Link, now: u64) -> u64 {
        let mut link = Link { delay: at(40), reached: at(100), ..link.clone() };
        link.advance(at(now));
        link.reached.as_millis() as u64
    }

    #[test]
    fn a_link_brings_what_is_due_and_never_goes_back() {
        let up = Link::default();
        assert_eq!((reached(&up, 120), reached(&up, 140), reached(&up, 500)), (100, 100, 460));
    }

    #[test]
    fn a_link_that_is_held_brings_nothing_and_after_a_loss_what_had_left() {
        let held = Link { held: true, ..Link::default() };
        let lost = Link { left: Some(at(300)), ..held.clone() };
        assert_eq!(reached(&held, 500), 100);
        assert_eq!((reached(&lost, 300), reached(&lost, 340), reached(&lost, 9_000)), (260, 300, 300));
    }

    #[test]
    fn nothing_passes_a_large_transaction() {
        let stalled = Link { stalled: true, ..Link::default() };
        assert_eq!(reached(&stalled, 500), 100);
        assert_eq!(reached(&Link { held: true, left: Some(at(300)), ..stalled.clone() }, 500), 100);
    }
}
