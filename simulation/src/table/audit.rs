//! One region's Postgres in memory: the promises of `onceway::ports::audit`, for reconciliation.
//!
//! Each double is journalled once: for a key, the run at risk's origin, the other one and its
//! token. Each late answer is journalled once: for its attempt.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::Arc;
use std::time::Duration;

use onceway::ports::audit::{Begin, Counted, Double, Finding, History, HistoryRow, Of, RunAtRisk, Stretch};
use onceway::ports::store::{Attempt, Written};
use onceway::ports::upkeep::{Entry, Place, Who};
use onceway::protocol::double::{Trace, Why};
use onceway::protocol::key::KeyId;
use onceway::protocol::plant::{Check, is_disabled};
use onceway::protocol::record::{Answer, AnswerBody, RequestId, Row, State, Token};
use onceway::protocol::region::Origin;
use onceway::protocol::time::Date;

use super::{Stored, Table, micros, settled};

impl Table {
    /// Another origin's newest settled row, and what explains both, if this attempt's row is open.
    pub(super) fn settled_elsewhere(&self, attempt: &Attempt) -> Option<(Row, Why)> {
        let own =
            self.own(&attempt.id).filter(|own| own.is_open() && own.is_of(attempt.token, attempt.nonce))?;
        let rows = self.all(&attempt.id).into_values().filter(|row| row.row.origin != self.origin);
        let settled = rows.filter(|row| matches!(row.row.state, State::Settled { .. }));
        let first = settled.max_by_key(|row| (row.row.token, Reverse(&row.row.origin)))?;
        let at_risk = !own.row.risk.is_empty() || !first.row.risk.is_empty();
        let named = own.names(&first.row.origin, first.row.token) || first.names(&self.origin, own.row.token);
        Some((first.row.clone(), Why::of(at_risk, named)))
    }

    /// Takes over the answer that others may have replayed already into the own row, and journals
    /// both answers (6d). If it is the same attempt's answer, as after a conversion of escrow,
    /// nothing ran twice.
    pub(super) fn take_over(
        &mut self,
        attempt: &Attempt,
        (first, why): (Row, Why),
        answer: &Answer,
    ) -> Written {
        let Row { origin, token, nonce, state: State::Settled { answer: kept, .. }, .. } = first else {
            return Written::Lost;
        };
        let reason = format!("{origin} settled {token} with {kept:?}; {} got {answer:?}", attempt.token);
        self.end(attempt, false, |_| Some(Some(settled(kept))));
        if nonce != attempt.nonce {
            let ran = (self.origin.clone(), attempt.token);
            self.enter_double(&attempt.id, ran, (origin, token), (Some(answer.status), &reason, why));
        }
        Written::Lost
    }

    /// Journals a double. Returns true if it was not known yet.
    fn enter_double(
        &mut self,
        id: &KeyId,
        ran: (Origin, Token),
        other: (Origin, Token),
        (status, reason, why): (Option<u16>, &str, Why),
    ) -> bool {
        let is_new =
            self.doubles.insert((id.clone(), ran.0, other.0, other.1)) && !is_disabled(Check::Journal);
        if is_new {
            self.enter(Some(id), "double", Some(ran.1), Who { actor: "", reason });
            self.amend(|entry| (entry.status, entry.explained) = (status, Some(why)));
        }
        is_new
    }

    pub(crate) fn late(&mut self, attempt: &Attempt, request_id: Option<RequestId>, answer: &Answer) -> bool {
        let own = self.own(&attempt.id).filter(|own| own.is_of(attempt.token, attempt.nonce));
        if own.is_some_and(Stored::is_final) || !self.lates.insert((attempt.id.clone(), attempt.nonce)) {
            return false;
        }
        let reason = format!("answered {}, too late", answer.status);
        self.enter(Some(&attempt.id), "late", Some(attempt.token), Who { actor: "", reason: &reason });
        self.amend(|entry| (entry.status, entry.request_id) = (Some(answer.status), request_id));
        true
    }

    fn amend(&mut self, more: impl FnOnce(&mut Entry)) {
        if let Some((_, entry)) = self.journal.last_mut() {
            more(entry);
        }
    }

    pub(crate) fn doubles(&self) -> Counted {
        let doubles = || self.journal.iter().filter(|(_, entry)| entry.kind == "double");
        let unexplained = doubles().filter(|(_, entry)| entry.explained == Some(Why::Unexplained));
        Counted { doubles: doubles().count() as u64, unexplained: unexplained.count() as u64 }
    }

    pub(crate) fn findings(&self, after: Option<Place>, back: Duration, most: u32) -> Vec<Finding> {
        let first = self.date().as_millis().saturating_sub(micros(back) / 1_000);
        let numbered = self.journal.iter().zip(1..).filter_map(|((id, entry), number)| {
            let is_one = matches!(entry.kind.as_str(), "double" | "late") && entry.at.as_millis() >= first;
            let id = id.clone().filter(|_| is_one)?;
            Some(Finding { place: Place(number), id, entry: entry.clone() })
        });
        let later = numbered.filter(|one| after.is_none_or(|Place(after)| one.place.0 > after));
        later.take(most as usize).collect()
    }

    pub(crate) fn histories(&self, begin: Begin<'_>, most: u32) -> Vec<History> {
        let journalled = self.journal.iter().filter_map(|(id, _)| id.as_ref());
        let ids: BTreeSet<&KeyId> = self.rows.keys().chain(self.imports.keys()).chain(journalled).collect();
        let follows = |id: &&KeyId| match begin {
            Begin::First => true,
            Begin::At(tenant) => id.tenant() >= tenant,
            Begin::After(after) => *id > after,
        };
        let entries = |id: &KeyId| {
            let about = self.journal.iter().filter(|(about, _)| about.as_ref() == Some(id));
            about.map(|(_, entry)| entry.clone()).collect()
        };
        let history =
            |id: &KeyId| History { id: id.clone(), rows: self.rows_of_key(id), journal: entries(id) };
        ids.into_iter().filter(follows).take(most as usize).map(history).collect()
    }

    pub(crate) fn rows_of_key(&self, id: &KeyId) -> Vec<HistoryRow> {
        let reply = |stored: &Stored| {
            let claimed = self.claimed(id, stored);
            HistoryRow {
                row: light(self.shown(stored)),
                route: stored.route.clone(),
                path: stored.path.clone(),
                claimed,
                settled: stored.settled.map(|at| Date(at.div_euclid(1_000))),
                imported: claimed.is_none(),
            }
        };
        self.all(id).into_values().map(reply).collect()
    }

    /// The time of a row's claim, by its origin's clock; not known of an imported one.
    fn claimed(&self, id: &KeyId, stored: &Stored) -> Option<Date> {
        self.is_replicated(id, stored).then_some(stored.claimed)
    }

    pub(crate) fn runs_at_risk(&self, after: Option<&KeyId>, most: u32) -> Vec<RunAtRisk> {
        let own = self.orders.risky().filter_map(|id| Some((id, self.own(id)?)));
        let runs = own.filter(|(id, _)| after.is_none_or(|after| *id > after));
        let listed = runs.map(|(id, row)| RunAtRisk {
            id: id.clone(),
            row: self.shown(row),
            route: row.route.clone(),
            path: row.path.clone(),
        });
        listed.take(most as usize).collect()
    }

    /// Returns one stretch of the records. Only keys of more than one copy are read.
    pub(crate) fn stretch(&self, of: Of, after: Option<&KeyId>, most: u32) -> Stretch {
        let mut page = Stretch::default();
        for id in self.keys_behind(of, after) {
            let copies = [&self.rows, &self.imports].map(|table| table.get(id).map_or(0, BTreeMap::len));
            let all = if copies.iter().sum::<usize>() > 1 { self.all(id) } else { BTreeMap::new() };
            let is_looked_at = |row: &&&Stored| of == Of::All || !row.row.risk.is_empty();
            page.looked_at += all.values().filter(is_looked_at).count().max(1) as u64;
            let traces = if all.is_empty() { Vec::new() } else { self.traces(id) };
            if traces.len() > 1 {
                page.shared.push((id.clone(), traces));
            }
            page.through = Some(id.clone());
            page.more = page.looked_at >= u64::from(most);
            if page.more {
                break;
            }
        }
        page
    }

    /// The keys behind one, in their order.
    fn keys_behind(&self, of: Of, after: Option<&KeyId>) -> BTreeSet<&KeyId> {
        let behind = (after.map_or(Unbounded, Excluded), Unbounded);
        let all = self.rows.range::<KeyId, _>(behind).chain(self.imports.range::<KeyId, _>(behind));
        let is_risky = |rows: &BTreeMap<Origin, Stored>| rows.values().any(|row| !row.row.risk.is_empty());
        all.filter(|(_, rows)| of == Of::All || is_risky(rows)).map(|(id, _)| id).collect()
    }

    pub(crate) fn traces(&self, id: &KeyId) -> Vec<Trace> {
        let trace = |row: &Stored| Trace {
            row: light(self.shown(row)),
            route: row.route.clone(),
            settled: row.settled.is_some(),
            over: self.is_over(row),
            claimed: self.claimed(id, row),
            tombstone: row.tombstone,
        };
        self.audited(id).into_iter().map(trace).collect()
    }

    /// True if the life of the key is over by this store's wall clock, tombstone included.
    fn is_over(&self, row: &Stored) -> bool {
        let is_settled = matches!(row.row.state, State::Settled { .. });
        let tombstone = if is_settled { micros(row.tombstone) } else { 0 };
        let lives = row.due.saturating_sub(row.held).saturating_add(tombstone);
        row.claimed.as_millis().saturating_mul(1_000).saturating_add(lives) <= self.clock.micros()
    }

    /// All rows of a key, by origin; of a replicated and an imported one the later, or both if both
    /// were settled and are not one attempt.
    fn audited(&self, id: &KeyId) -> Vec<&Stored> {
        let all = self.all(id);
        let counts = |row: &&Stored| {
            all.get(&row.row.origin).is_some_and(|later| {
                let two = row.row.nonce != later.row.nonce && row.settled.is_some();
                std::ptr::eq(*later, *row) || (two && later.settled.is_some())
            })
        };
        let each = [&self.rows, &self.imports].into_iter().filter_map(|table| table.get(id));
        let mut rows: Vec<&Stored> = each.flat_map(BTreeMap::values).filter(counts).collect();
        rows.sort_by_key(|row| &row.row.origin);
        rows
    }

    pub(crate) fn journal_doubles(&mut self, found: &[Double]) -> Vec<bool> {
        let mut journalled = Vec::new();
        for Double { id, first, second, at_risk, named, reason } in found {
            let turned = (id.clone(), second.origin.clone(), first.origin.clone(), first.token);
            let status = match &first.state {
                State::Settled { answer, .. } => Some(answer.status),
                _ => None,
            };
            let (ran, other) = ((first.origin.clone(), first.token), (second.origin.clone(), second.token));
            let why = Why::of(*at_risk, *named);
            let is_new = !self.doubles.contains(&turned);
            journalled.push(is_new && self.enter_double(id, ran, other, (status, reason, why)));
        }
        journalled
    }
}

fn light(mut row: Row) -> Row {
    if let State::Settled { answer, .. } = &mut row.state {
        let body = AnswerBody::NotKept;
        *answer = Arc::new(Answer { status: answer.status, headers: Vec::new(), body });
    }
    row
}
