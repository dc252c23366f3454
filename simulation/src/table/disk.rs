//! Applied commits of other origins: those that a Postgres would forget if it crashed now, and the
//! effect of `onceway store reseed`, which follows an origin anew.
//!
//! A subscription commits without waiting for the disk (`synchronous_commit = off`). Each commit of
//! the store's own does wait, and flushes all commits applied before it. The WAL writer flushes the
//! rest a moment later. These count as the store's own commits: claims and ends of attempts,
//! heartbeats, gates, views, the acceptor, lodged claims, imports, the memory of peers and the
//! journal. The queue of jobs and the list of doubts do not count, so a little more is forgotten
//! here than by Postgres. [`crate::cluster`] sends the others again.
//! `adapters::postgres::provision` has the statements of a reseed.

use std::time::Duration;

use onceway::ports::store::PeerMemory;
use onceway::protocol::key::KeyId;
use onceway::protocol::record::{State, Token};
use onceway::protocol::region::Origin;

use super::parts::{Applied, Before, Change, Commit, Sent, Unflushed, at, taken};
use super::{Stored, Table, micros};

/// The time after which the WAL writer has flushed every commit: three times its delay of 200 ms.
const WAL_WRITER: Duration = Duration::from_millis(600);

impl Table {
    /// Applies a commit of the store with this number, as an apply worker would: without a gate.
    pub(crate) fn apply(&mut self, from: &Origin, store: u64, commit: &Commit) {
        let before = match commit.change.clone() {
            Change::Row(id, row) => {
                self.arrives(from, &id, row.row.token);
                let before = self.rows.entry(id.clone()).or_default().insert(from.clone(), *row);
                Before::Row(id, before.map(Box::new))
            }
            Change::Gone(id) => {
                let before = taken(&mut self.rows, &id, from);
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

    /// Notes that an attempt's row of another origin came here.
    pub(super) fn arrives(&mut self, from: &Origin, id: &KeyId, token: Token) {
        self.history.arrived.push((from.region.clone(), id.clone(), token));
        self.latest.entry(from.clone()).or_default().insert(id.clone());
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
                Before::Row(id, Some(row)) => _ = self.rows.entry(id).or_default().insert(from, *row),
                Before::Row(id, None) => _ = taken(&mut self.rows, &id, &from),
                Before::Beat(Some(beat)) => _ = self.beats.insert(from, beat),
                Before::Beat(None) => _ = self.beats.remove(&from),
            }
        }
        forgotten
    }

    pub(crate) fn snapshot(&self) -> Vec<(KeyId, Stored)> {
        let own =
            self.rows.iter().filter_map(|(id, rows)| Some((id.clone(), rows.get(&self.origin)?.clone())));
        own.collect()
    }

    /// Turns the rows of this origin into imported ones, and empties its leaves. The heartbeat up
    /// to which its rows were complete is remembered with them. As imported rows they say no less.
    pub(crate) fn reseed(&mut self, from: &Origin) {
        let ids: Vec<KeyId> =
            self.rows.iter().filter(|(_, rows)| rows.contains_key(from)).map(|(id, _)| id.clone()).collect();
        for id in ids {
            let ends = at(&self.rows, &id, from).map(|row| self.ends(&id, row));
            let Some((ends, mut row)) = ends.zip(taken(&mut self.rows, &id, from)) else { continue };
            // The end of an imported row includes its tombstone.
            let is_tombstone = matches!(row.row.state, State::Tombstone);
            row.due = ends.saturating_add(if is_tombstone { 0 } else { micros(row.tombstone) });
            let held = self.imports.entry(id).or_default();
            if held.get(from).is_none_or(|known| row.is_newer_than(known)) {
                held.insert(from.clone(), row);
            }
        }
        self.keeps(from);
        self.beats.remove(from);
        self.flushed();
    }

    /// Ends the subscription to this origin. A copy that was never complete counts for nothing.
    pub(crate) fn leaves(&mut self, from: &Origin) {
        self.keeps(from);
        if self.copying.remove(from) {
            self.beats.remove(from);
        }
        self.flushed();
    }

    /// Counts this origin's replicated rows, if complete, as imported up to its heartbeat.
    fn keeps(&mut self, from: &Origin) {
        let seq = self.beats.get(from).map(|beat| beat.seq);
        if let Some(seq) = seq.filter(|_| !self.copying.contains(from)) {
            self.remember(&[PeerMemory { origin: from.clone(), applied: 0, lag: None, imported: seq }]);
        }
    }

    pub(crate) fn copies(&mut self, from: &Origin, runs: bool) {
        match runs {
            true => self.copying.insert(from.clone()),
            false => self.copying.remove(from),
        };
    }

    /// True while the first copy of this origin is not complete.
    pub(crate) fn is_copying(&self, from: &Origin) -> bool {
        self.copying.contains(from)
    }

    /// Completes the first copy of this origin: its rows of the beginning, and their changes since.
    pub(crate) fn copied(&mut self, from: &Origin, snapshot: Vec<(KeyId, Stored)>, since: &[Commit]) {
        let snapshot = snapshot.into_iter().map(|(id, row)| Change::Row(id, Box::new(row)));
        for change in snapshot.chain(since.iter().map(|commit| commit.change.clone())) {
            match change {
                Change::Row(id, row) => {
                    self.arrives(from, &id, row.row.token);
                    self.rows.entry(id).or_default().insert(from.clone(), *row);
                }
                Change::Gone(id) => drop(taken(&mut self.rows, &id, from)),
                Change::Beat(_) => {}
            }
        }
        self.copying.remove(from);
        self.flushed();
    }
}
