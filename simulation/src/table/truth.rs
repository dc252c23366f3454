//! The truth about a store, as the checker and a story read it.
//!
//! [`super::history`] has the words.

use std::collections::BTreeMap;
use std::time::Duration;

use onceway::protocol::key::KeyId;
use onceway::protocol::record::{State, Token};
use onceway::protocol::region::Origin;

use super::history::{HeardOf, History, Record, Standing, Truth, Write};
use super::parts::{Change, Commit};
use super::stored::span;
use super::{Stored, Table};

impl Table {
    pub(crate) fn truth(&self) -> Truth {
        Truth {
            origin: self.origin.clone(),
            history: self.history.clone(),
            writes: self.log.iter().filter_map(Commit::written).collect(),
            rows: self.rows.keys().chain(self.imports.keys()).map(|id| (id.clone(), self.read(id))).collect(),
            journal: self.journal.clone(),
        }
    }

    /// The end of an attempt's hold and settle time, since the world began, as its claim says.
    pub(crate) fn over_by(&self, id: &KeyId, token: Token) -> Option<Duration> {
        self.log.iter().rev().find_map(|commit| match &commit.change {
            Change::Row(of, row) if of == id && row.row.token == token && row.is_claimed() => {
                Some(commit.at + row.hold + row.row.settle_time)
            }
            Change::Row(..) | Change::Gone(_) | Change::Beat(_) => None,
        })
    }

    pub(crate) fn history(&self) -> &History {
        &self.history
    }

    pub(crate) fn heard(&self) -> BTreeMap<Origin, HeardOf> {
        let heard = |(origin, rows): (Origin, u64)| {
            let beat = self.beats.get(&origin).filter(|_| !self.copying.contains(&origin));
            let epoch = beat.map_or(0, |beat| beat.epoch);
            (origin, HeardOf { epoch, rows })
        };
        self.applied().into_iter().map(heard).collect()
    }

    /// The heartbeat of each origin up to which its rows are here.
    pub(super) fn applied(&self) -> BTreeMap<Origin, u64> {
        let whole = self.beats.iter().filter(|(origin, _)| !self.copying.contains(*origin));
        let mut applied: BTreeMap<Origin, u64> =
            whole.map(|(origin, beat)| (origin.clone(), beat.seq)).collect();
        for (origin, memory) in &self.memory {
            let seq = applied.entry(origin.clone()).or_insert(0);
            *seq = memory.imported.max(*seq);
        }
        applied
    }
}

impl Commit {
    /// The commit's write of a record, if it has one. A restored one was written before.
    pub(crate) fn written(&self) -> Option<Write> {
        if self.restored {
            return None;
        }
        let (id, record) = match &self.change {
            Change::Row(id, row) => (id, Some(row.recorded())),
            Change::Gone(id) => (id, None),
            Change::Beat(_) => return None,
        };
        let (id, approved, beside_open) = (id.clone(), self.approved, self.beside_open);
        Some(Write { at: self.at, id, record, approved, beside_open })
    }
}

impl Stored {
    fn recorded(&self) -> Record {
        let lives = span(self.due.saturating_sub(self.held));
        let row = self.row.clone();
        Record {
            token: row.token,
            standing: match row.state {
                State::Claimed { .. } => Standing::Claimed,
                State::InDoubt { .. } => Standing::InDoubt,
                State::Released => Standing::Released,
                State::Settled { .. } => Standing::Settled,
                State::Tombstone => Standing::Tombstone,
            },
            over: row.over,
            risk: row.risk,
            accepted: row.accepted,
            request_id: row.request_id,
            route: self.route.clone(),
            hold: self.hold,
            lives: (lives, lives.saturating_add(self.tombstone)),
        }
    }
}
