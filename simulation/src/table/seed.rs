//! Following a peer anew: what `onceway store reseed` does to the rows of an origin.
//!
//! Neighbours: [`crate::cluster`] ships and loses slots; `adapters::postgres::provision` has the statements that this repeats. What was here
//! of the origin stays readable as imported rows until its copy is whole. It must not touch another origin's rows.

use onceway::protocol::key::KeyId;
use onceway::protocol::lifetime::NEVER;
use onceway::protocol::region::Origin;

use super::stored::micros;
use super::{Phase, Stored, Table};

/// What a store held of its own at one moment.
#[derive(Clone, Debug, Default)]
pub(crate) struct Snapshot {
    rows: Vec<(KeyId, Stored)>,
    beat: Option<(u64, u64)>,
}

impl Table {
    /// What a subscriber copies first.
    pub(crate) fn snapshot(&self) -> Snapshot {
        let own =
            self.rows.iter().filter_map(|(id, rows)| Some((id.clone(), rows.get(&self.origin)?.clone())));
        Snapshot { rows: own.collect(), beat: self.beats.get(&self.origin).copied() }
    }

    /// The rows of this origin become imported ones, and its leaf is empty; its new heartbeat is the first to arrive.
    pub(crate) fn reseed(&mut self, from: &Origin, snapshot: &Snapshot) {
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
        self.beats.remove(from);
        if let Some(beat) = snapshot.beat {
            self.beats.insert(from.clone(), beat);
        }
        self.flushed();
    }

    /// The first copy of this origin is whole.
    pub(crate) fn copied(&mut self, from: &Origin, snapshot: Snapshot) {
        for (id, row) in snapshot.rows {
            self.rows.entry(id).or_default().insert(from.clone(), row);
        }
        self.flushed();
    }
}
