//! The applied commits that one region's Postgres would forget if it crashed now, because they are
//! not flushed yet.
//!
//! A subscription commits without waiting for the disk (`synchronous_commit = off`). Each commit of
//! the store's own does wait, and flushes all commits applied before it. The WAL writer flushes the
//! rest a moment later. These count as the store's own commits: claims and ends of attempts,
//! heartbeats, gates, views, the acceptor, lodged claims, imports, the memory of peers and the
//! journal. The queue of jobs and the list of doubts do not count, so a little more is forgotten
//! here than by Postgres. [`crate::cluster`] sends the others again.

use std::time::Duration;

use onceway::protocol::key::KeyId;
use onceway::protocol::record::Token;
use onceway::protocol::region::Origin;

use super::Table;
use super::parts::{Applied, Before, Change, Commit, Sent, Unflushed, taken};

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
                Before::Row(id, Some(row)) => {
                    self.rows.entry(id).or_default().insert(from, *row);
                }
                Before::Row(id, None) => {
                    taken(&mut self.rows, &id, &from);
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
