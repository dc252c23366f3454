//! One region's Postgres in memory: lodged claims of other regions, and rows of survivors.
//!
//! Both tables are local: nothing of them ships.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use onceway::ports::authority::{CopiedRow, Latest, Lodged, Lodging};
use onceway::ports::store::{Attempt, GateVersion, Written};
use onceway::protocol::key::KeyId;
use onceway::protocol::plant::{Check, is_disabled};
use onceway::protocol::record::{Answer, Nonce, Row, State, Token};
use onceway::protocol::region::Origin;
use onceway::protocol::time::Date;

use super::parts::{Escrowed, Over, at, taken};
use super::stored::span;
use super::upkeep::LATER;
use super::{CLAIMED, Lodgment, Stored, Table, in_doubt, micros, settled};

impl Escrowed {
    fn is(&self, token: Token, nonce: Nonce) -> bool {
        (self.lodging.token, self.lodging.terms.nonce) == (token, nonce)
    }

    /// The end of the key's tombstone, by observed time: as long as its home refuses the key.
    fn ends(&self) -> i64 {
        let kept = !is_disabled(Check::LodgedLives);
        let tombstone = if kept { self.lodging.terms.lifetime.tombstone } else { Duration::ZERO };
        self.due.saturating_add(micros(tombstone))
    }
}

impl Table {
    pub(super) fn lodged(&self) -> BTreeSet<Origin> {
        self.escrows.values().flat_map(|held| held.keys().cloned()).collect()
    }

    pub(crate) fn lodge(&mut self, lodging: &Lodging, gate: GateVersion) -> Lodged {
        if !self.is_open() || (self.version != gate && !is_disabled(Check::EscrowGate)) {
            return Lodged::GateMoved;
        }
        let Lodging { id, origin, token, .. } = lodging;
        match at(&self.escrows, id, origin) {
            Some(held) if held.is(*token, lodging.terms.nonce) => return Lodged::Done,
            Some(held) if held.lodging.token >= *token => return Lodged::Superseded,
            Some(_) | None => {}
        }
        let (expires, due) = self.life(&lodging.terms.lifetime);
        let (date, stored) = (self.date(), self.start());
        let escrowed = Escrowed { lodging: lodging.clone(), answer: None, date, stored, expires, due };
        self.escrows.entry(id.clone()).or_default().insert(origin.clone(), escrowed);
        let at = self.clock.elapsed();
        self.history.lodged.push(Lodgment { at, id: id.clone(), origin: origin.clone(), token: *token });
        self.flushed();
        Lodged::Done
    }

    pub(crate) fn void(&mut self, origin: &Origin, Attempt { id, token, nonce }: &Attempt) {
        if at(&self.escrows, id, origin).is_some_and(|held| held.is(*token, *nonce)) {
            self.remove_escrow(id, origin);
        }
    }

    pub(crate) fn lodge_answer(&mut self, origin: &Origin, attempt: &Attempt, answer: &Answer) -> Written {
        let Attempt { id, token, nonce } = attempt;
        let held = self.escrows.get_mut(id).and_then(|held| held.get_mut(origin));
        match held.filter(|held| held.is(*token, *nonce)) {
            None => Written::Lost,
            Some(held) => {
                held.answer = Some(Arc::new(answer.clone()));
                self.flushed();
                Written::Done
            }
        }
    }

    /// `None` while the running boot is not approved: zero would mean that nothing is left.
    pub(crate) fn convert(&mut self, origin: &Origin, most: u32) -> Option<u64> {
        if !self.is_open() {
            return None;
        }
        if is_disabled(Check::Conversion) {
            return Some(0);
        }
        let of_origin =
            |(id, held): (&KeyId, &BTreeMap<Origin, Escrowed>)| held.contains_key(origin).then(|| id.clone());
        let ids: Vec<KeyId> = self.escrows.iter().filter_map(of_origin).take(most as usize).collect();
        for id in &ids {
            let Some(escrowed) = self.remove_escrow(id, origin) else { continue };
            let token = escrowed.lodging.token;
            let rows = self.all(id);
            let known = |of: &Origin| rows.get(of).is_some_and(|row| row.row.token >= token);
            let own = rows.get(&self.origin).copied();
            // A final record stays, whatever its token.
            if known(origin) || known(&self.origin) || own.is_some_and(Stored::is_final) {
                continue;
            }
            let over = own.map(|own| own.row.over.clone()).unwrap_or_default();
            let row = self.converted(&self.origin, escrowed, over);
            let is_open = row.is_open();
            self.write(id, row);
            if is_open {
                let since = self.date();
                self.doubts.entry(id.clone()).or_insert((since, None));
            }
        }
        Some(ids.len() as u64)
    }

    /// The claim that was lodged, as a record of this origin.
    fn converted(&self, origin: &Origin, escrowed: Escrowed, over: Over) -> Stored {
        let Escrowed { lodging, answer, date, stored, expires, due } = escrowed;
        let settled_at = answer.is_some().then(|| self.clock.micros());
        let state = answer.map_or(in_doubt(None), settled);
        let (times, life) = ((date, stored), (expires, due));
        let new = Stored::new(&lodging.terms, origin, lodging.token, state, times, life);
        // An escrow row does not tell the attempts before apart: all may have happened.
        let doubted = lodging.token.attempts().saturating_sub(1);
        Stored { row: Row { over, doubted, ..new.row }, settled: settled_at, ..new }
    }

    pub(crate) fn reap_escrows(&mut self, most: u32) -> u64 {
        if !self.is_open() {
            return 0;
        }
        let by = self.now();
        let mut over = Vec::new();
        for (id, held) in &self.escrows {
            let rows = self.all(id);
            for (origin, escrowed) in held {
                let arrived = rows.get(origin).is_some_and(|row| row.row.token >= escrowed.lodging.token);
                if arrived || escrowed.ends() <= by {
                    over.push((id.clone(), origin.clone(), arrived));
                }
            }
        }
        over.truncate(most as usize);
        for (id, origin, arrived) in &over {
            self.history.escrows_gone += u64::from(!arrived);
            self.remove_escrow(id, origin);
        }
        over.len() as u64
    }

    pub(crate) fn reap_imports(&mut self, most: u32) -> u64 {
        if !self.is_open() {
            return 0;
        }
        let now = self.now();
        let of_key = |(id, held): (&KeyId, &BTreeMap<Origin, Stored>)| {
            let due = held.iter().filter(|(_, row)| row.due <= now);
            due.map(|(origin, _)| (id.clone(), origin.clone())).collect::<Vec<_>>()
        };
        let due: Vec<(KeyId, Origin)> = self.imports.iter().flat_map(of_key).take(most as usize).collect();
        let mut gone = 0;
        for (id, origin) in due {
            if self.is_answered_for(&id, &origin) || is_disabled(Check::OpenImport) {
                taken(&mut self.imports, &id, &origin);
                gone += 1;
            } else if let Some(row) = self.imports.get_mut(&id).and_then(|held| held.get_mut(&origin)) {
                row.due = now.saturating_add(micros(LATER));
            }
        }
        self.history.imports_gone += gone;
        self.flushed();
        gone
    }

    /// True if the key's result would not change without this imported row.
    fn is_answered_for(&self, id: &KeyId, origin: &Origin) -> bool {
        let Some(row) = at(&self.imports, id, origin) else { return true };
        let rows = self.all(id);
        if rows.get(origin).is_none_or(|counts| !std::ptr::eq(*counts, row)) {
            return true;
        }
        let mut others = rows.iter().filter(|(other, _)| **other != origin).map(|(_, row)| row);
        match row.row.state {
            State::Settled { .. } | State::Tombstone => others.all(|other| other.is_final()),
            State::Released => others.all(|other| !other.is_open()),
            State::Claimed { .. } | State::InDoubt { .. } => {
                others.any(|other| other.is_final() || !other.is_open() && other.names(origin, row.row.token))
            }
        }
    }

    fn remove_escrow(&mut self, id: &KeyId, origin: &Origin) -> Option<Escrowed> {
        let escrowed = taken(&mut self.escrows, id, origin)?;
        self.flushed();
        Some(escrowed)
    }

    pub(crate) fn rows_of(&self, origin: &Origin, after: Option<&KeyId>, most: u32) -> Vec<CopiedRow> {
        let ids: BTreeSet<&KeyId> = self.rows.keys().chain(self.imports.keys()).collect();
        let ids = ids.into_iter().filter(|id| after.is_none_or(|after| *id > after));
        ids.filter_map(|id| self.handed_over(id, origin)).take(most as usize).collect()
    }

    fn handed_over(&self, id: &KeyId, origin: &Origin) -> Option<CopiedRow> {
        let row = *self.all(id).get(origin)?;
        // The end of an imported row includes its tombstone.
        let beyond = match row.row.state {
            State::Tombstone => 0,
            _ if self.is_replicated(id, row) => 0,
            _ => micros(row.tombstone),
        };
        Some(self.copy(id, row, self.ends(id, row).saturating_sub(beyond)))
    }

    fn copy(&self, id: &KeyId, row: &Stored, ends: i64) -> CopiedRow {
        CopiedRow {
            id: id.clone(),
            row: self.shown(row),
            hold: row.hold,
            lives: span(ends.saturating_sub(self.now())),
            tombstone: row.tombstone,
            route: row.route.clone(),
            path: row.path.clone(),
        }
    }

    /// A place is the number of a row in the order of keys.
    pub(crate) fn latest_of(&self, origin: &Origin, from: u64, most: u32) -> Latest {
        let rows = self.latest.get(origin).into_iter().flatten();
        let rows = rows.filter_map(|id| self.handed_over(id, origin));
        let lodged = self.escrows.iter().filter_map(|(id, held)| Some((id, held.get(origin)?)));
        let lodged = lodged.map(|(id, escrowed)| {
            let mut row = self.converted(origin, escrowed.clone(), Vec::new());
            if row.is_open() {
                row.row.state = CLAIMED;
            }
            self.copy(id, &row, row.due)
        });
        let all: Vec<_> = (0..).zip(rows.chain(lodged)).skip(from as usize).collect();
        let next = (all.len() > most as usize).then(|| from + u64::from(most));
        Latest { rows: all.into_iter().take(most as usize).collect(), next }
    }

    /// Written before the boot is approved only.
    pub(crate) fn restore(&mut self, rows: &[CopiedRow]) -> Written {
        if self.is_open() {
            return Written::GateMoved;
        }
        let (date, start) = (self.clock.micros(), self.start());
        for copied in rows {
            let due = micros(copied.lives).saturating_add(start);
            let row = Stored { due, ..imported(&self.origin, copied, start, date) };
            if self.own(&copied.id).is_none_or(|known| row.is_newer_than(known)) {
                self.write(&copied.id, row);
                self.log.last_mut().expect("it was just written").restored = true;
            }
        }
        Written::Done
    }

    /// `None` while the running boot is not approved.
    pub(crate) fn import(&mut self, origin: &Origin, rows: &[CopiedRow]) -> Option<()> {
        if !self.is_open() {
            return None;
        }
        let (date, start) = (self.clock.micros(), self.start());
        for copied in rows {
            self.arrives(origin, &copied.id, copied.row.token);
            let row = imported(origin, copied, start, date);
            let held = self.imports.entry(copied.id.clone()).or_default();
            if held.get(origin).is_none_or(|known| row.is_newer_than(known)) {
                held.insert(origin.clone(), row);
            }
        }
        self.flushed();
        Some(())
    }
}

fn imported(origin: &Origin, copied: &CopiedRow, start: i64, date: i64) -> Stored {
    let CopiedRow { id: _, row, hold, lives, tombstone, route, path } = copied.clone();
    let stays = if matches!(row.state, State::Tombstone) { Duration::ZERO } else { tombstone };
    let settled = match row.state {
        State::Settled { age, .. } => Some(date.saturating_sub(micros(age))),
        _ => None,
    };
    Stored {
        row: Row { origin: origin.clone(), ..row },
        hold,
        claimed: Date(date.div_euclid(1_000)),
        held: start,
        due: start.saturating_add(micros(lives)).saturating_add(micros(stays)),
        tombstone,
        route,
        path,
        settled,
    }
}
