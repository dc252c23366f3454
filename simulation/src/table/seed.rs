//! Following a peer anew: what `onceway store reseed` does to the rows of an origin.
//!
//! Neighbours: [`crate::cluster`] ships and loses slots; `adapters::postgres::provision` has the statements that this repeats. What was here
//! of the origin stays readable as imported rows until its copy is whole. It must not touch another origin's rows.

use onceway::ports::store::PeerMemory;
use onceway::protocol::key::KeyId;
use onceway::protocol::lifetime::NEVER;
use onceway::protocol::region::Origin;

use super::stored::micros;
use super::{Change, Commit, Phase, Stored, Table};

/// What a store held of its own at one moment.
#[derive(Clone, Debug, Default)]
pub(crate) struct Snapshot {
    rows: Vec<(KeyId, Stored)>,
}

impl Table {
    /// The own records, as a subscriber copies them.
    pub(crate) fn snapshot(&self) -> Snapshot {
        let own =
            self.rows.iter().filter_map(|(id, rows)| Some((id.clone(), rows.get(&self.origin)?.clone())));
        Snapshot { rows: own.collect() }
    }

    /// The rows of this origin become imported ones, and its leaves are empty. Up to where its rows
    /// were whole is remembered with them, as they say no less as imported ones.
    pub(crate) fn reseed(&mut self, from: &Origin) {
        let ids: Vec<KeyId> =
            self.rows.iter().filter(|(_, rows)| rows.contains_key(from)).map(|(id, _)| id.clone()).collect();
        for id in ids {
            let Some(mut row) = self.remove(&id, from) else { continue };
            // The end of an imported row counts its tombstone in.
            if !matches!(row.phase, Phase::Tombstone) {
                row.due = row.due.saturating_add(micros(row.tombstone)).min(NEVER.0.saturating_mul(1_000));
            }
            let held = self.imports.entry(id).or_default();
            if held.get(from).is_none_or(|known| row.is_newer_than(known)) {
                held.insert(from.clone(), row);
            }
        }
        self.keeps(from);
        self.beats.remove(from);
        self.flushed();
    }

    /// The subscription to this origin ends. A copy that was never whole counts for nothing.
    pub(crate) fn leaves(&mut self, from: &Origin) {
        self.keeps(from);
        if self.copying.remove(from) {
            self.beats.remove(from);
        }
        self.flushed();
    }

    /// Counts what replication brought of this origin by now as imported up to its heartbeat, if it
    /// is whole.
    fn keeps(&mut self, from: &Origin) {
        let seq = self.beats.get(from).map(|(seq, _)| *seq);
        if let Some(seq) = seq.filter(|_| !self.copying.contains(from)) {
            self.remember(&[PeerMemory { origin: from.clone(), applied: 0, lag: None, imported: seq }]);
        }
    }

    /// The first copy of this origin runs, or does not run.
    pub(crate) fn copies(&mut self, from: &Origin, runs: bool) {
        match runs {
            true => self.copying.insert(from.clone()),
            false => self.copying.remove(from),
        };
    }

    /// True while the first copy of this origin is not whole.
    pub(crate) fn is_copying(&self, from: &Origin) -> bool {
        self.copying.contains(from)
    }

    /// The first copy of this origin is whole: its rows as they were when it began, and what
    /// changed since then.
    pub(crate) fn copied(&mut self, from: &Origin, snapshot: Snapshot, since: &[Commit]) {
        for (id, row) in snapshot.rows {
            self.rows.entry(id).or_default().insert(from.clone(), row);
        }
        for commit in since {
            match commit.change.clone() {
                Change::Row(id, row) => {
                    self.rows.entry(id).or_default().insert(from.clone(), *row);
                }
                Change::Gone(id) => {
                    self.remove(&id, from);
                }
                Change::Beat { .. } => {}
            }
        }
        self.copying.remove(from);
        self.flushed();
    }
}
