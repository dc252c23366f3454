//! Following a peer anew: the effect of `onceway store reseed` on the rows of an origin.
//!
//! `adapters::postgres::provision` has the statements that this repeats. The origin's existing rows
//! stay readable as imported rows until its copy is complete.

use onceway::ports::store::PeerMemory;
use onceway::protocol::key::KeyId;
use onceway::protocol::record::State;
use onceway::protocol::region::Origin;

use super::parts::{Change, Commit, at, taken};
use super::{Stored, Table, micros};

impl Table {
    /// The own rows at this moment.
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
