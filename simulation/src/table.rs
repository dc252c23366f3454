//! One region's Postgres in memory: its gate, its tables, its log of commits, and the statements.
//!
//! Each statement is one transaction. [`crate::cluster`] ships the log to other regions.

mod audit;
mod authority;
mod disk;
mod escrow;
mod history;
mod jobs;
mod parts;
mod stored;
mod truth;
mod upkeep;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use onceway::ports::store::{
    Attempt, Beat, Boot, ClaimAsk, ClaimReply, Gate, GateVersion, Heartbeat, PeerMemory, Unclear, Written,
};
use onceway::ports::upkeep::Entry;
use onceway::protocol::authority::GateState;
use onceway::protocol::key::KeyId;
use onceway::protocol::lifetime::{Lifetime, NEVER, Retention};
use onceway::protocol::observed::{self, Observed, Passed};
use onceway::protocol::plant::{Check, is_disabled};
use onceway::protocol::record::{Answer, Basis, Nonce, Row, State, Token, next_attempt};
use onceway::protocol::region::Origin;
use onceway::protocol::register::Acceptor;
use onceway::protocol::time::Date;
use onceway::protocol::view::{AcceptorId, View};

pub use history::{Gated, Granted, HeardOf, Held, History, Lodgment, Record, Standing, Truth, Write};
pub(crate) use history::{founded, fresh};
pub(crate) use parts::Change;
pub(crate) use stored::Stored;

use crate::clock::SimClock;
use parts::{Beaten, Commit, Keyed, Over, at, taken};
use stored::{CLAIMED, Orders, in_doubt, micros, names, settled};

#[derive(Clone, Debug)]
pub(crate) struct Table {
    origin: Origin,
    clock: SimClock,
    version: GateVersion,
    epoch: u64,
    state: Option<GateState>,
    approved: Option<Boot>,
    running: Boot,
    acceptor: (u64, Acceptor),
    views: BTreeMap<u64, (Arc<View>, i64)>,
    escrows: Keyed<parts::Escrowed>,
    imports: Keyed<Stored>,
    /// Doubles in the journal: the key, the run's origin, the other one and its token.
    doubles: BTreeSet<(KeyId, Origin, Origin, Token)>,
    /// Attempts whose late answers are in the journal.
    lates: BTreeSet<(KeyId, Nonce)>,
    /// The greatest token of a row that was ever reaped.
    forgotten: Token,
    history: History,
    rows: Keyed<Stored>,
    /// The own rows, in the orders of their look-ups.
    orders: Orders,
    beats: BTreeMap<Origin, Beaten>,
    /// Keys whose rows of each origin were applied or imported after its newest heartbeat.
    latest: BTreeMap<Origin, BTreeSet<KeyId>>,
    /// Origins whose rows are being copied for the first time. Their heartbeats already arrive.
    copying: BTreeSet<Origin>,
    memory: BTreeMap<Origin, PeerMemory>,
    /// The listed keys, since when, and what the upstream said.
    doubts: BTreeMap<KeyId, (Date, Option<String>)>,
    journal: Vec<(Option<KeyId>, Entry)>,
    log: Vec<Commit>,
    jobs: BTreeMap<KeyId, parts::Kept>,
    /// Applied commits that a crash would forget.
    unflushed: parts::Unflushed,
}

impl Table {
    /// An empty store at epoch 1, started now, whose boot is not approved yet.
    pub(crate) fn new(origin: Origin, system: u64, clock: SimClock) -> Self {
        let running = Boot { system, timeline: 1, started: clock.micros() };
        Self {
            origin,
            clock,
            version: GateVersion(1),
            epoch: 1,
            state: None,
            approved: None,
            running,
            // Every store has its own system identifier, so its acceptor has its own id.
            acceptor: (1, Acceptor::made(AcceptorId(u128::from(system)))),
            views: BTreeMap::new(),
            escrows: BTreeMap::new(),
            imports: BTreeMap::new(),
            doubles: BTreeSet::new(),
            lates: BTreeSet::new(),
            forgotten: Token { epoch: 0, attempt: 0 },
            history: History::default(),
            rows: BTreeMap::new(),
            orders: Orders::default(),
            beats: BTreeMap::new(),
            latest: BTreeMap::new(),
            copying: BTreeSet::new(),
            memory: BTreeMap::new(),
            doubts: BTreeMap::new(),
            journal: Vec::new(),
            log: Vec::new(),
            jobs: BTreeMap::new(),
            unflushed: parts::Unflushed::default(),
        }
    }

    pub(crate) fn restart(&mut self) {
        self.running.started = self.clock.micros().max(self.running.started + 1);
    }

    /// Moves the server to a new timeline, as a promoted standby does.
    pub(crate) fn promote(&mut self) {
        self.running.timeline += 1;
        self.restart();
    }

    /// The server of a promoted standby with these data. By its own number the checker knows it.
    pub(crate) fn promoted(mut self, number: u64, before: &Table) -> Self {
        let gates = self.history.gates.last().cloned().into_iter().collect();
        self.history = History::default();
        self.history.gates = gates;
        self.log.clear();
        self.flushed();
        self.running = Boot { system: number, ..before.running.clone() };
        self.promote();
        self
    }

    /// Restarts the server over an older copy of its data. Commits shipped before stay shipped.
    pub(crate) fn put_back(&mut self, copy: Table) {
        let log = std::mem::take(&mut self.log);
        let history = std::mem::take(&mut self.history);
        let running = self.running.clone();
        *self = Self { log, history, running, ..copy };
        self.flushed();
        self.restart();
    }

    pub(crate) fn origin(&self) -> &Origin {
        &self.origin
    }

    pub(crate) fn running(&self) -> &Boot {
        &self.running
    }

    /// No other store ever has this number.
    pub(crate) fn number(&self) -> u64 {
        self.running.system
    }

    pub(crate) fn log(&self) -> &[Commit] {
        &self.log
    }

    pub(crate) fn gate(&self) -> Gate {
        Gate {
            state: self.state.clone(),
            version: self.version,
            epoch: self.epoch,
            approved: self.approved.clone(),
            running: self.running.clone(),
        }
    }

    /// This store's observed time in microseconds, at the least: what is judged is judged by it.
    fn now(&self) -> i64 {
        match is_disabled(Check::ObservedTime) {
            true => self.clock.micros(),
            false => self.counter().0,
        }
    }

    /// The same at the most: what begins now counts from it.
    fn start(&self) -> i64 {
        match is_disabled(Check::ObservedTime) {
            true => self.clock.micros(),
            false => self.counter().1,
        }
    }

    fn counter(&self) -> (i64, i64) {
        let Some(beat) = self.beats.get(&self.origin) else { return (0, 0) };
        let now = i64::try_from(beat.observed.0).unwrap_or(i64::MAX).saturating_mul(1_000);
        (now, now.saturating_add(micros(beat.step)))
    }

    pub(crate) fn observes(&mut self, span: Duration) {
        let millis = u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
        if let Some(beat) = self.beats.get_mut(&self.origin) {
            beat.observed.0 = beat.observed.0.saturating_add(millis);
        }
    }

    /// The end of a stored life in this store's observed time. Of a replicated row it is not before
    /// the end in its origin's, of which its last heartbeat tells.
    fn ends(&self, id: &KeyId, row: &Stored) -> i64 {
        let is_ours = row.row.origin == self.origin || !self.is_replicated(id, row);
        if is_ours || is_disabled(Check::ObservedTime) {
            return row.due;
        }
        let there = self.beats.get(&row.row.origin).map_or(0, |beat| beat.observed.0);
        let there = i64::try_from(there).unwrap_or(i64::MAX).saturating_mul(1_000);
        row.due.saturating_sub(there).saturating_add(self.start())
    }

    /// True if replication brought this row of a key; else a survivor handed it over.
    fn is_replicated(&self, id: &KeyId, row: &Stored) -> bool {
        at(&self.rows, id, &row.row.origin).is_some_and(|one| std::ptr::eq(one, row))
    }

    fn is_open(&self) -> bool {
        self.approved.as_ref() == Some(&self.running)
    }

    pub(crate) fn approve(&mut self, version: GateVersion, boot: &Boot) -> Written {
        if version != self.version || *boot != self.running {
            return Written::Lost;
        }
        self.approved = Some(boot.clone());
        self.version.0 += 1;
        self.flushed();
        Written::Done
    }

    /// Executes one claim statement: the nonce first, then the gate and the rows in the way.
    pub(crate) fn claim(&mut self, ask: &ClaimAsk) -> ClaimReply {
        let now = self.now();
        let own = self.own(&ask.id);
        // Before the gate, which may have moved since an earlier call wrote it.
        if let Some(own) = own.filter(|own| own.row.nonce == ask.terms.nonce && own.is_claimed()) {
            return own.won();
        }
        // A claim of an absent key looks for rows first: it returns them whatever the gate says.
        if matches!(ask.basis, Basis::Absent) && !self.all(&ask.id).is_empty() {
            return ClaimReply::Found(self.read(&ask.id));
        }
        let moved = ask.gate != self.version && !is_disabled(Check::GateInClaim);
        if moved || (!self.is_open() && !is_disabled(Check::BootInGate)) {
            self.history.stale += 1;
            return ClaimReply::GateMoved;
        }
        let Some((over, known)) = self.yielded(ask, own, now) else {
            return ClaimReply::Found(self.read(&ask.id));
        };
        let accepted = own.is_some_and(|own| own.row.accepted);
        let row = self.row(ask, CLAIMED, over, self.next_attempt(known), accepted);
        let won = row.won();
        self.write(&ask.id, row);
        won
    }

    fn next_attempt(&self, known: u32) -> u32 {
        next_attempt(known, self.epoch, self.forgotten)
    }

    /// The rows that a claim supersedes, and the last attempt that it knows; `None`: a row is in the way.
    fn yielded(&self, ask: &ClaimAsk, own: Option<&Stored>, now: i64) -> Option<(Over, u32)> {
        match &ask.basis {
            Basis::Absent => Some((Vec::new(), 0)),
            Basis::Known { own: seen, over, attempt } => {
                let yields = self.own_yields(own, *seen, now) && self.others_yield(&ask.id, over, *attempt);
                yields.then(|| (over.clone(), *attempt))
            }
        }
    }

    fn row(&self, ask: &ClaimAsk, state: State, over: Over, attempt: u32, accepted: bool) -> Stored {
        let token = Token { epoch: self.epoch, attempt };
        let life = self.life(&ask.terms.lifetime);
        let new = Stored::new(&ask.terms, &self.origin, token, state, (self.date(), self.start()), life);
        let (risk, doubted) = (ask.risk.clone(), self.doubted(&ask.id));
        Stored { row: Row { over, risk, accepted, doubted, ..new.row }, ..new }
    }

    /// The end of the promise, as a date for people, and of the stored life of what begins now.
    fn life(&self, lifetime: &Lifetime) -> (Date, i64) {
        match lifetime.retention {
            Retention::For(span) => {
                let expires = self.clock.micros().saturating_add(micros(span)).div_euclid(1_000);
                let stored = micros(span).saturating_add(micros(lifetime.skew));
                (Date(expires), self.start().saturating_add(stored))
            }
            Retention::Never => (NEVER, i64::MAX),
        }
    }

    /// The number of attempts of a key that may have happened: the claim that is written keeps it.
    fn doubted(&self, id: &KeyId) -> u32 {
        self.all(id).values().map(|one| one.row.doubted + u32::from(one.is_open())).max().unwrap_or(0)
    }

    /// True if the own row is the one that the basis saw, in a state that lets a new attempt begin.
    fn own_yields(&self, own: Option<&Stored>, seen: Option<(Token, Nonce)>, now: i64) -> bool {
        match (own, seen) {
            (None, None) => true,
            (Some(own), Some((token, nonce))) => {
                let over = !own.is_claimed() || own.left(now).is_zero();
                own.is_of(token, nonce) && over && !own.is_final()
            }
            (None, Some(_)) | (Some(_), None) => false,
        }
    }

    /// True if each row of another origin is superseded knowingly: by this basis or by an existing
    /// row. A released row of no higher attempt number needs neither.
    fn others_yield(&self, id: &KeyId, over: &[(Origin, Token)], attempt: u32) -> bool {
        let rows = self.all(id);
        rows.iter().filter(|(origin, _)| **origin != &self.origin).all(|(origin, one)| {
            let token = one.row.token;
            let masked =
                || names(over, origin, token) || rows.values().any(|other| other.names(origin, token));
            match one.row.state {
                State::Settled { .. } | State::Tombstone => false,
                State::Claimed { .. } | State::InDoubt { .. } => masked() || is_disabled(Check::Over),
                State::Released => masked() || token.attempt <= attempt,
            }
        })
    }

    pub(crate) fn settle(&mut self, attempt: &Attempt, answer: &Answer) -> Written {
        if let Some(first) = self.is_open().then(|| self.settled_elsewhere(attempt)).flatten() {
            return self.take_over(attempt, first, answer);
        }
        self.end(attempt, false, |state| match state {
            State::Claimed { .. } | State::InDoubt { .. } => Some(Some(settled(answer.clone()))),
            // Another answer under the same token has lost to that one.
            State::Settled { answer: stored, .. } => (**stored == *answer).then_some(None),
            State::Released | State::Tombstone => None,
        })
    }

    pub(crate) fn release(&mut self, attempt: &Attempt) -> Written {
        self.end(attempt, false, |state| match state {
            State::Claimed { .. } | State::InDoubt { .. } => Some(Some(State::Released)),
            State::Released => Some(None),
            State::Settled { .. } | State::Tombstone => None,
        })
    }

    pub(crate) fn doubt(&mut self, attempt: &Attempt, answer: Option<Unclear>) -> Written {
        let status = answer.as_ref().map(|answer| answer.status);
        let ended = answer.as_ref().is_some_and(|answer| answer.ends_attempt);
        let written = self.end(attempt, ended, |state| match state {
            State::Claimed { .. } => Some(Some(in_doubt(status))),
            State::InDoubt { .. } => Some(None),
            State::Released | State::Settled { .. } | State::Tombstone => None,
        });
        if written == Written::Done {
            let since = self.date();
            let excerpt = answer.and_then(|answer| answer.excerpt);
            self.doubts.entry(attempt.id.clone()).or_insert((since, None)).1 = excerpt;
        }
        written
    }

    /// Moves the attempt's row along an arrow: `None` is no arrow, `Some(None)` is at its end.
    /// `ended`: an answer ended the attempt, so that nothing has to be waited for.
    fn end(
        &mut self,
        attempt: &Attempt,
        ended: bool,
        arrow: impl FnOnce(&State) -> Option<Option<State>>,
    ) -> Written {
        if !self.is_open() {
            self.history.stale += 1;
            return Written::GateMoved;
        }
        let own = self.own(&attempt.id).filter(|own| own.is_of(attempt.token, attempt.nonce)).cloned();
        let moved = own.and_then(|own| Some((arrow(&own.row.state)?, own)));
        let Some((next, mut own)) = moved else {
            self.history.stale += 1;
            return Written::Lost;
        };
        if let Some(state) = next {
            let settles = matches!(state, State::Settled { .. });
            own.settled = settles.then(|| self.clock.micros());
            own.row.state = state;
            if ended {
                (own.hold, own.row.settle_time) = (Duration::ZERO, Duration::ZERO);
            }
            self.write(&attempt.id, own);
        }
        Written::Done
    }

    /// All rows of a key, in the order of their origins.
    pub(crate) fn read(&self, id: &KeyId) -> Vec<Row> {
        self.all(id).into_values().map(|row| self.shown(row)).collect()
    }

    fn shown(&self, row: &Stored) -> Row {
        let now = (row.row.origin == self.origin).then(|| self.now());
        row.shown(now, self.clock.micros())
    }

    /// One row per origin: the newer of the replicated and the imported one.
    fn all(&self, id: &KeyId) -> BTreeMap<&Origin, &Stored> {
        let mut rows: BTreeMap<&Origin, &Stored> = self.rows.get(id).into_iter().flatten().collect();
        for (origin, imported) in self.imports.get(id).into_iter().flatten() {
            let row = rows.entry(origin).or_insert(imported);
            if imported.is_newer_than(row) {
                *row = imported;
            }
        }
        rows
    }

    pub(crate) fn beat(&mut self, passed: Option<Passed>) -> Option<Beat> {
        if !self.is_open() {
            return None;
        }
        let (was, step) = self.counted();
        let (observed, counted) = match &passed {
            Some(passed) => observed::next(was, passed, step),
            None => (was, false),
        };
        let step = passed.map_or(step, |passed| passed.step);
        let seq = self.write_beat(observed, step);
        Some(Beat { seq, date: self.date(), observed, counted })
    }

    /// The row that provisioning writes: the heartbeat before the first, replicated like any other.
    pub(crate) fn provisioned(&mut self) {
        self.beats_as(0, Observed::default(), Duration::ZERO);
    }

    /// The own last heartbeat; 0 before the first.
    pub(crate) fn last_beat(&self) -> u64 {
        self.beats.get(&self.origin).map_or(0, |last| last.seq)
    }

    /// The own counter, and the most that the next heartbeat adds to it.
    fn counted(&self) -> (Observed, Duration) {
        self.beats.get(&self.origin).map(|last| (last.observed, last.step)).unwrap_or_default()
    }

    fn write_beat(&mut self, observed: Observed, step: Duration) -> u64 {
        let seq = self.last_beat() + 1;
        self.beats_as(seq, observed, step);
        seq
    }

    fn beats_as(&mut self, seq: u64, observed: Observed, step: Duration) {
        let beat = Beaten { seq, epoch: self.epoch, date: self.date(), observed, step };
        self.beats.insert(self.origin.clone(), beat);
        self.commit(Change::Beat(beat));
    }

    pub(crate) fn heartbeats(&self) -> Vec<Heartbeat> {
        let beat = |(origin, beat): (&Origin, &Beaten)| Heartbeat {
            origin: origin.clone(),
            seq: beat.seq,
            epoch: beat.epoch,
            whole: !self.copying.contains(origin),
            date: beat.date,
        };
        self.beats.iter().map(beat).collect()
    }

    pub(crate) fn remember(&mut self, memory: &[PeerMemory]) {
        for peer in memory {
            // A remembered heartbeat never goes back, whichever gateway of the region writes last.
            let known = self.memory.get(&peer.origin);
            let applied = peer.applied.max(known.map_or(0, |known| known.applied));
            let imported = peer.imported.max(known.map_or(0, |known| known.imported));
            let lag = peer.lag.or(known.and_then(|known| known.lag));
            self.history.remembers(&peer.origin, peer.lag, self.clock.elapsed());
            self.memory.insert(peer.origin.clone(), PeerMemory { applied, imported, lag, ..peer.clone() });
            self.flushed();
        }
    }

    pub(crate) fn recall(&self) -> Vec<PeerMemory> {
        self.memory.values().cloned().collect()
    }

    fn own(&self, id: &KeyId) -> Option<&Stored> {
        at(&self.rows, id, &self.origin)
    }

    fn write(&mut self, id: &KeyId, row: Stored) {
        let was = self.rows.entry(id.clone()).or_default().insert(self.origin.clone(), row.clone());
        self.orders.turn(id, was.as_ref(), Some(&row));
        self.commit(Change::Row(id.clone(), Box::new(row)));
    }

    fn delete(&mut self, id: &KeyId) {
        let was = taken(&mut self.rows, id, &self.origin);
        self.orders.turn(id, was.as_ref(), None);
        self.commit(Change::Gone(id.clone()));
    }

    fn date(&self) -> Date {
        Date(self.clock.micros().div_euclid(1_000))
    }

    fn commit(&mut self, change: Change) {
        let approved = self.is_open();
        let beside_open = match &change {
            Change::Gone(id) => {
                self.all(id).iter().any(|(origin, row)| **origin != self.origin && !row.is_final())
            }
            Change::Row(..) | Change::Beat(_) => false,
        };
        self.log.push(Commit { at: self.clock.elapsed(), approved, beside_open, restored: false, change });
        self.flushed();
    }
}
