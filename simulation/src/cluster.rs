//! All regions' stores and the replication between them: per pair, asynchronous, in commit order.
//!
//! A link ships lazily: each read of a store first lets everything arrive that is due by then. So
//! no task is needed, and nothing depends on when one runs.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use onceway::ports::store::{Boot, Subscription};
use onceway::protocol::authority::GateState;
use onceway::protocol::key::KeyId;
use onceway::protocol::record::Token;
use onceway::protocol::region::{Origin, RegionName};
use onceway::protocol::register::Ballot;
use onceway::protocol::view::{AcceptorId, View};

use crate::clock::SimClock;
use crate::process::locked;
use crate::table::{Change, Stored, Table, Truth};

/// Of statements that write, each of so many is late where some are.
const LATE_EACH: u64 = 3;

/// The behaviour of a region's store with the statements of its gateways.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StoreMode {
    #[default]
    Up,
    /// Refuses connections: surely nothing was written.
    Refuse,
    /// Does not answer; the caller gives up after this long. Nothing was written, unknown to it.
    Stall(Duration),
    /// Executes and loses the reply; the caller gives up after this long. The write happened.
    LoseReplies(Duration),
    /// Every third statement that writes is executed after its caller gave up; all else as ever.
    Late {
        /// After this long the caller gives up.
        bound: Duration,
        /// And this much later it takes effect.
        after: Duration,
    },
}

/// A copy of one region's data.
#[derive(Clone, Debug)]
pub struct Copied(Table);

impl Copied {
    pub fn heartbeat(&self) -> u64 {
        self.0.last_beat()
    }
}

#[derive(Clone, Debug, Default)]
struct Link {
    shipped: usize,
    delay: Duration,
    held: bool,
    /// The publisher was lost. Commits up to this time had left it, and are still applied.
    left: Option<Duration>,
    /// True if nothing is applied, as behind a large transaction.
    stalled: bool,
    /// All commits up to this time are applied.
    reached: Duration,
    slot: Slot,
}

impl Link {
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

/// The publisher's slot for a subscriber, as measured with Postgres.
#[derive(Clone, Debug, Default)]
enum Slot {
    /// The slot keeps everything that is not shipped yet.
    #[default]
    Kept,
    /// The slot is lost and no row arrives. The subscription reports only that it does not stream.
    Lost,
    /// The first copy of the records runs. Heartbeats already arrive as they are written.
    Copying(Box<Copy>),
}

#[derive(Clone, Debug)]
struct Copy {
    /// The copy is complete once all commits up to this time have arrived.
    due: Duration,
    records: Vec<(KeyId, Stored)>,
    /// The length of the publisher's log at the start of the copy.
    begun: usize,
    /// The place of the publisher's last heartbeat in that log.
    beats: usize,
}

#[derive(Debug)]
struct Region {
    clock: SimClock,
    table: Table,
    mode: StoreMode,
    latency: Duration,
    /// The delay between the write of a claim and its sender's confirmation.
    confirms: Duration,
    /// The number of statements that might have been late.
    lates: u64,
}

#[derive(Debug, Default)]
struct Inner {
    regions: BTreeMap<RegionName, Region>,
    /// Links by subscriber, then by publisher.
    links: BTreeMap<RegionName, BTreeMap<RegionName, Link>>,
    made: u64,
    /// Stores that were destroyed, in their last state, for checkers.
    buried: Vec<Table>,
    /// The number of executed statements, and of commits applied from other regions.
    events: u64,
}

/// The stores of all regions; clones are the same cluster. Panics if a region was never added.
#[derive(Clone, Debug, Default)]
pub struct Cluster(Arc<Mutex<Inner>>);

impl Cluster {
    /// Adds a region with an empty store, replicated to and from all others without delay.
    pub fn add(&self, origin: Origin, clock: SimClock) {
        let mut inner = locked(&self.0);
        let name = origin.region.clone();
        for other in inner.others(&name) {
            inner.links.entry(other.clone()).or_default().insert(name.clone(), Link::default());
            inner.links.entry(name.clone()).or_default().insert(other, Link::default());
        }
        let mut table = inner.make(origin, &clock);
        table.provisioned();
        let (mode, latency, confirms) = (StoreMode::Up, Duration::ZERO, Duration::ZERO);
        inner.regions.insert(name, Region { clock, table, mode, latency, confirms, lates: 0 });
    }

    pub fn origin(&self, region: &RegionName) -> Origin {
        locked(&self.0).region(region).table.origin().clone()
    }

    /// Kills a region's Postgres and starts it at once. Its own commits stay. Applied rows of
    /// others that were not flushed are lost; the regions that still exist send them again.
    pub fn crash(&self, region: &RegionName) {
        self.kill(region);
        self.set_mode(region, StoreMode::Up);
        self.restart(region);
    }

    /// Like [`Self::crash`], but refuses connections until it is set to answer and restarted.
    pub fn kill(&self, region: &RegionName) {
        let mut inner = locked(&self.0);
        inner.catch_up(region);
        inner.forget_unflushed(region);
        inner.region(region).mode = StoreMode::Refuse;
    }

    /// Restarts a region's Postgres as `pg_ctl restart` does: same data, a new boot.
    pub fn restart(&self, region: &RegionName) {
        let mut inner = locked(&self.0);
        inner.catch_up(region);
        inner.region(region).table.restart();
    }

    pub fn observes(&self, region: &RegionName, span: Duration) {
        locked(&self.0).region(region).table.observes(span);
    }

    /// Replaces a region's Postgres by a standby with all its data. Nobody can see a difference.
    pub fn promote(&self, region: &RegionName) {
        let mut inner = locked(&self.0);
        inner.catch_up(region);
        inner.region(region).table.promote();
    }

    /// Replaces a region's Postgres by a standby that has its data up to this copy.
    pub fn promote_to(&self, region: &RegionName, copied: Copied) {
        let mut inner = locked(&self.0);
        inner.others(region).iter().for_each(|other| inner.catch_up(other));
        inner.made += 1;
        let number = inner.made;
        let promoted = copied.0.promoted(number, &inner.region(region).table);
        inner.bury(region, promoted);
        inner.tell_copies(region);
    }

    pub fn step_clock(&self, region: &RegionName, micros: i64) {
        locked(&self.0).region(region).clock.step(micros);
    }

    /// The state of a region's gate, as its store holds it; `None` before the founding.
    pub fn gate(&self, region: &RegionName) -> Option<GateState> {
        locked(&self.0).region(region).table.gate().state
    }

    /// The entries of a region's journal that belong to no key, oldest first.
    pub fn notes(&self, region: &RegionName) -> Vec<onceway::ports::upkeep::Entry> {
        locked(&self.0).region(region).table.notes()
    }

    /// A copy of a region's data, as a backup would take it.
    pub fn copy(&self, region: &RegionName) -> Copied {
        let mut inner = locked(&self.0);
        inner.catch_up(region);
        Copied(inner.region(region).table.clone())
    }

    /// Restarts a region's Postgres over an older copy of its data. Its later writes are forgotten
    /// here only. Rows that had arrived since then do not arrive again.
    pub fn restore(&self, region: &RegionName, copied: Copied) {
        let mut inner = locked(&self.0);
        inner.catch_up(region);
        inner.region(region).table.put_back(copied.0);
        inner.tell_copies(region);
    }

    /// Destroys a region's store with all that has not reached the others, until it is rebuilt.
    pub fn destroy(&self, region: &RegionName) {
        let mut inner = locked(&self.0);
        inner.others(region).iter().for_each(|other| inner.catch_up(other));
        let lost = inner.region(region);
        lost.mode = StoreMode::Refuse;
        let (origin, clock) = (lost.table.origin().clone(), lost.clock.clone());
        let empty = inner.make(origin, &clock);
        inner.bury(region, empty);
    }

    /// Sets up an empty store of this generation in place of a destroyed one. It copies the others.
    pub fn rebuild(&self, region: &RegionName, generation: u32) {
        self.rebuild_within(region, generation, Duration::ZERO);
    }

    /// The same, and the first copies of others' records take so long; heartbeats arrive at once.
    pub fn rebuild_within(&self, region: &RegionName, generation: u32, takes: Duration) {
        let mut inner = locked(&self.0);
        let lost = inner.region(region);
        lost.mode = StoreMode::Up;
        let (clock, before) = (lost.clock.clone(), lost.table.origin().clone());
        let mut empty = inner.make(Origin { region: region.clone(), generation }, &clock);
        empty.provisioned();
        inner.region(region).table = empty;
        inner.ship_from_the_start(region);
        for other in &inner.others(region) {
            inner.region(other).table.leaves(&before);
            inner.begin_copy(other, region, takes);
        }
    }

    pub fn acceptors(&self) -> BTreeMap<RegionName, AcceptorId> {
        let inner = locked(&self.0);
        let ids = inner.regions.iter().map(|(name, region)| (name.clone(), region.table.acceptor().1.id));
        ids.collect()
    }

    pub(crate) fn found(&self, ballot: &Ballot, view: &Arc<View>) {
        for region in locked(&self.0).regions.values_mut() {
            region.table.found(ballot, view);
        }
    }

    /// The truth about every store that ever existed, destroyed first, as of its last statement.
    pub fn truths(&self) -> Vec<Truth> {
        let mut all = Vec::new();
        self.each_table(|table| all.push(table.truth()));
        all
    }

    /// Shows every store that ever existed, destroyed ones first.
    pub(crate) fn each_table(&self, look: impl FnMut(&Table)) {
        let inner = locked(&self.0);
        inner.buried.iter().chain(inner.regions.values().map(|region| &region.table)).for_each(look);
    }

    /// The end of an attempt's hold and settle time, since the world began, as its claim says.
    pub(crate) fn over_by(&self, region: &RegionName, id: &KeyId, token: Token) -> Option<Duration> {
        locked(&self.0).region(region).table.over_by(id, token)
    }

    /// Switches how a region's store treats statements, from the next one on.
    pub fn set_mode(&self, region: &RegionName, mode: StoreMode) {
        locked(&self.0).region(region).mode = mode;
    }

    /// Sets the duration of a statement, there and back.
    pub fn set_latency(&self, region: &RegionName, latency: Duration) {
        locked(&self.0).region(region).latency = latency;
    }

    /// Sets the delay between a claim's write and its confirmation, for claims sent from now on.
    pub fn set_confirms(&self, region: &RegionName, later: Duration) {
        locked(&self.0).region(region).confirms = later;
    }

    pub(crate) fn confirms(&self, region: &RegionName) -> Duration {
        locked(&self.0).region(region).confirms
    }

    /// Sets the duration of replication from `from` to `to`. Commits due before have arrived.
    pub fn set_delay(&self, from: &RegionName, to: &RegionName, delay: Duration) {
        self.change_link(from, to, |link, _| link.delay = delay);
    }

    /// Holds the link from `from` to `to`, or releases it: then held commits arrive as due.
    pub fn hold(&self, from: &RegionName, to: &RegionName, held: bool) {
        self.change_link(from, to, |link, _| (link.held, link.left) = (held, None));
    }

    /// Ends the link from `from` to `to` as the loss of `from` does, until it is released. Arrived
    /// commits are applied when due. Those on their way for less than `on_its_way` are not.
    pub fn sever(&self, from: &RegionName, to: &RegionName, on_its_way: Duration) {
        let left = |now: Duration| Some(now.saturating_sub(on_its_way));
        self.change_link(from, to, |link, now| (link.held, link.left) = (true, left(now)));
    }

    /// Lets all commits of `from` wait at `to`, as behind a large transaction, or come all at once.
    pub fn stall(&self, from: &RegionName, to: &RegionName, stalled: bool) {
        self.change_link(from, to, |link, _| link.stalled = stalled);
    }

    /// The mode of `region`'s store for the next statement, and the statement's duration.
    pub(crate) fn manners(&self, region: &RegionName) -> (StoreMode, Duration) {
        let mut inner = locked(&self.0);
        let region = inner.region(region);
        (region.mode, region.latency)
    }

    pub(crate) fn is_late(&self, region: &RegionName) -> bool {
        let mut inner = locked(&self.0);
        let lates = &mut inner.region(region).lates;
        *lates += 1;
        lates.is_multiple_of(LATE_EACH)
    }

    /// The server that runs in a region; `None` while none does.
    pub(crate) fn server(&self, region: &RegionName) -> Option<Boot> {
        let mut inner = locked(&self.0);
        let region = inner.region(region);
        (region.mode != StoreMode::Refuse).then(|| region.table.running().clone())
    }

    /// Executes one statement on a region's store, with everything applied that is due.
    pub(crate) fn execute<T>(&self, region: &RegionName, statement: impl FnOnce(&mut Table) -> T) -> T {
        let mut inner = locked(&self.0);
        inner.events += 1;
        inner.catch_up(region);
        statement(&mut inner.region(region).table)
    }

    pub(crate) fn events(&self) -> u64 {
        locked(&self.0).events
    }

    /// Loses the slot of `to` at `from`, with all commits that had not arrived.
    pub fn lose_slot(&self, from: &RegionName, to: &RegionName) {
        self.change_link(from, to, |link, _| link.slot = Slot::Lost);
    }

    /// Lets `to` follow `from` anew, as `onceway store reseed` does, if its slot is still lost.
    /// Existing rows stay as imported rows. All rows that the publisher has now are copied once
    /// this time is over. Heartbeats arrive at once, the current one first.
    pub fn reseed(&self, from: &RegionName, to: &RegionName, takes: Duration) {
        let mut inner = locked(&self.0);
        if !matches!(inner.link(from, to).slot, Slot::Lost) {
            return;
        }
        inner.catch_up(from);
        inner.catch_up(to);
        let origin = inner.region(from).table.origin().clone();
        inner.region(to).table.reseed(&origin);
        inner.begin_copy(from, to, takes);
    }

    pub fn is_up(&self, region: &RegionName) -> bool {
        locked(&self.0).region(region).mode == StoreMode::Up
    }

    pub(crate) fn subscriptions(&self, to: &RegionName) -> Vec<Subscription> {
        let inner = locked(&self.0);
        let Some(reader) = inner.regions.get(to) else { return Vec::new() };
        let shown = |(from, link): (&RegionName, &Link)| {
            let publisher = inner.regions.get(from).map(|publisher| publisher.table.origin());
            let ready = publisher.is_some_and(|origin| !reader.table.is_copying(origin));
            let streaming = !link.held && !matches!(link.slot, Slot::Lost);
            Subscription { from: from.to_string(), ready, streaming }
        };
        inner.links.get(to).into_iter().flatten().map(shown).collect()
    }

    /// Changes a link at this moment. All commits due before have arrived.
    fn change_link(&self, from: &RegionName, to: &RegionName, change: impl FnOnce(&mut Link, Duration)) {
        let mut inner = locked(&self.0);
        inner.catch_up(to);
        let now = inner.region(from).clock.elapsed();
        change(inner.link(from, to), now);
    }
}

impl Inner {
    fn others(&self, region: &RegionName) -> Vec<RegionName> {
        self.regions.keys().filter(|other| *other != region).cloned().collect()
    }

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

    /// Puts another store in the place of a region's, which checkers still see.
    fn bury(&mut self, region: &RegionName, next: Table) {
        let buried = std::mem::replace(&mut self.region(region).table, next);
        self.buried.push(buried);
        self.ship_from_the_start(region);
    }

    /// Lets a new store ship from the start: it has nothing of the others, nor they of its log.
    fn ship_from_the_start(&mut self, region: &RegionName) {
        for (to, incoming) in &mut self.links {
            let touched = incoming.iter_mut().filter(|(from, _)| *from == region || to == region);
            touched.for_each(|(_, link)| (link.shipped, link.slot) = (0, Slot::Kept));
        }
    }

    fn tell_copies(&mut self, to: &RegionName) {
        let incoming = self.links.get(to).into_iter().flatten();
        let run: Vec<(RegionName, bool)> =
            incoming.map(|(from, link)| (from.clone(), matches!(link.slot, Slot::Copying(_)))).collect();
        for (from, runs) in run {
            let origin = self.region(&from).table.origin().clone();
            self.region(to).table.copies(&origin, runs);
        }
    }

    /// Applies at `to` every due commit, each link's in its own order.
    fn catch_up(&mut self, to: &RegionName) {
        let Self { regions, links, made: _, buried: _, events } = self;
        let (mut due, mut copied) = (Vec::new(), Vec::new());
        for (from, link) in links.get_mut(to).into_iter().flatten() {
            let Some(publisher) = regions.get(from) else { continue };
            link.advance(publisher.clock.elapsed());
            let (origin, log) = (publisher.table.origin(), publisher.table.log());
            match &link.slot {
                Slot::Lost => continue,
                Slot::Copying(copy) if link.reached >= copy.due => {
                    let since = log.get(copy.begun..link.shipped).unwrap_or_default().to_vec();
                    copied.push((origin.clone(), copy.records.clone(), since));
                    link.slot = Slot::Kept;
                }
                Slot::Kept | Slot::Copying(_) => {}
            }
            let log = &log[link.shipped..];
            if log.first().is_none_or(|first| first.at > link.reached) {
                continue;
            }
            let mut fresh: Vec<_> =
                log.iter().take_while(|commit| commit.at <= link.reached).cloned().collect();
            link.shipped += fresh.len();
            if matches!(link.slot, Slot::Copying(_)) {
                // The copier brings the changes of the table that is being copied, at the end.
                fresh.retain(|commit| matches!(commit.change, Change::Beat(_)));
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

    /// Makes the slot anew and begins the first copy. Heartbeats arrive beside it from the last on.
    fn begin_copy(&mut self, from: &RegionName, to: &RegionName, takes: Duration) {
        let publisher = self.region(from);
        let (origin, log) = (publisher.table.origin().clone(), publisher.table.log());
        let beats = log.iter().rposition(|commit| matches!(commit.change, Change::Beat(_)));
        let (begun, beats) = (log.len(), beats.unwrap_or(log.len()));
        let (due, records) = (publisher.clock.elapsed() + takes, publisher.table.snapshot());
        self.region(to).table.copies(&origin, true);
        let link = self.link(from, to);
        (link.shipped, link.slot) = (beats, Slot::Copying(Box::new(Copy { due, records, begun, beats })));
    }

    /// Takes back the rows that a crash of the store at `to` forgets. Commits on their way are gone
    /// with the connection. Publishers that still exist send them again.
    fn forget_unflushed(&mut self, to: &RegionName) {
        let forgotten = self.region(to).table.crash();
        let Self { regions, links, made: _, buried: _, events: _ } = self;
        for (from, link) in links.get_mut(to).into_iter().flatten() {
            link.left = None;
            let Some(publisher) = regions.get(from).map(|region| region.table.number()) else { continue };
            // A replaced store sends nothing any more.
            for sent in forgotten.iter().filter(|sent| sent.store == publisher) {
                match &link.slot {
                    // Rows skipped meanwhile cannot be forgotten: heartbeats come again from there.
                    Slot::Copying(copy) => link.shipped = copy.beats,
                    Slot::Kept | Slot::Lost => link.shipped -= 1,
                }
                link.reached = link.reached.min(sent.at.saturating_sub(Duration::from_nanos(1)));
            }
        }
    }
}
