//! One region's Postgres in memory: the promises of `onceway::ports::audit`, for reconciliation.
//!
//! Each double is journalled once: for a key, the run at risk's origin, the other one and its
//! token. Each late answer is journalled once: for its attempt.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::Arc;
use std::time::Duration;

use onceway::ports::audit::{Begin, Counted, Double, Finding, History, HistoryRow, Of, RunAtRisk, Stretch};
use onceway::ports::store::{Attempt, Written};
use onceway::ports::upkeep::{Entry, Place};
use onceway::protocol::double::{Trace, Why};
use onceway::protocol::key::KeyId;
use onceway::protocol::plant::{Check, is_disabled};
use onceway::protocol::record::{Answer, AnswerBody, Nonce, RequestId, Row, State, Token};
use onceway::protocol::region::Origin;
use onceway::protocol::time::Date;

use super::{Phase, Stored, Table, micros};

/// Another origin's final row.
pub(super) struct Settlement {
    origin: Origin,
    token: Token,
    nonce: Nonce,
    answer: Arc<Answer>,
    at_risk: bool,
    named: bool,
}

impl Table {
    /// The final row of another origin with the highest token, if this attempt's own row is open.
    pub(super) fn settled_elsewhere(&self, attempt: &Attempt) -> Option<Settlement> {
        let own = self.own(&attempt.id)?;
        let is_open = matches!(own.phase, Phase::Claimed | Phase::InDoubt(_));
        if !is_open || own.token != attempt.token || own.nonce != attempt.nonce {
            return None;
        }
        let rows = self.all(&attempt.id).into_iter().filter(|(origin, _)| **origin != self.origin);
        let names = |row: &Stored, other: &Origin, token: Token| {
            row.over.iter().any(|(named, upto)| named == other && *upto >= token)
        };
        let settled = rows.filter_map(|(origin, row)| match &row.phase {
            Phase::Settled(answer, _) => Some(Settlement {
                origin: origin.clone(),
                token: row.token,
                nonce: row.nonce,
                answer: answer.clone(),
                at_risk: !own.risk.is_empty() || !row.risk.is_empty(),
                named: names(own, origin, row.token) || names(row, &self.origin, own.token),
            }),
            Phase::Claimed | Phase::InDoubt(_) | Phase::Released | Phase::Tombstone => None,
        });
        settled.max_by(|a, b| a.token.cmp(&b.token).then_with(|| b.origin.cmp(&a.origin)))
    }

    /// Takes over the answer that others may have replayed already into the own row, and journals
    /// both answers (6d). If it is the same attempt's answer, as after a conversion of escrow,
    /// nothing ran twice.
    pub(super) fn take_over(&mut self, attempt: &Attempt, first: Settlement, answer: &Answer) -> Written {
        let now = self.clock.micros();
        let Settlement { origin, token, nonce, answer: kept, at_risk, named } = first;
        let reason = format!("{origin} settled {token} with {kept:?}; {} got {answer:?}", attempt.token);
        self.end(attempt, false, |_| Some(Some(Phase::Settled(kept, now))));
        if nonce != attempt.nonce {
            let ran = (self.origin.clone(), attempt.token);
            self.enter_double(
                &attempt.id,
                ran,
                (origin, token),
                (Some(answer.status), &reason, Why::of(at_risk, named)),
            );
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
            self.enter(Some(id), "double", Some(ran.1), Some(("", reason)));
            self.amend(|entry| (entry.status, entry.explained) = (status, Some(why)));
        }
        is_new
    }

    pub(crate) fn late(&mut self, attempt: &Attempt, request_id: Option<RequestId>, answer: &Answer) -> bool {
        let own = self.own(&attempt.id);
        let ended = own.is_some_and(|own| {
            own.token == attempt.token
                && own.nonce == attempt.nonce
                && matches!(own.phase, Phase::Settled(..) | Phase::Tombstone)
        });
        if ended || !self.lates.insert((attempt.id.clone(), attempt.nonce)) {
            return false;
        }
        let reason = format!("answered {}, too late", answer.status);
        self.enter(Some(&attempt.id), "late", Some(attempt.token), Some(("", &reason)));
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
        let page = ids.into_iter().filter(follows).take(most as usize);
        page.map(|id| self.history_of(id)).collect()
    }

    pub(crate) fn rows_of_key(&self, id: &KeyId) -> Vec<HistoryRow> {
        let reply = |(origin, stored): (&Origin, &Stored)| {
            let claimed = self.claimed(id, origin, stored);
            let row = light(self.shown(origin, stored));
            let settled = stored.settled_at().map(|at| Date(at.div_euclid(1_000)));
            HistoryRow {
                row,
                route: stored.route.clone(),
                path: stored.path.clone(),
                claimed,
                settled,
                imported: claimed.is_none(),
            }
        };
        self.all(id).into_iter().map(reply).collect()
    }

    fn history_of(&self, id: &KeyId) -> History {
        let about = self.journal.iter().filter(|(about, _)| about.as_ref() == Some(id));
        let journal = about.map(|(_, entry)| entry.clone()).collect();
        History { id: id.clone(), rows: self.rows_of_key(id), journal }
    }

    /// The time of a row's claim, by its origin's clock; not known of an imported one.
    fn claimed(&self, id: &KeyId, origin: &Origin, stored: &Stored) -> Option<Date> {
        let replicated = self.rows.get(id)?.get(origin)?;
        std::ptr::eq(replicated, stored).then_some(stored.claimed)
    }

    pub(crate) fn runs_at_risk(&self, after: Option<&KeyId>, most: u32) -> Vec<RunAtRisk> {
        let own = self.orders.risky().filter_map(|id| Some((id, self.own(id)?)));
        let runs = own.filter(|(id, _)| after.is_none_or(|after| *id > after));
        let listed = runs.map(|(id, row)| RunAtRisk {
            id: id.clone(),
            row: self.shown(&self.origin, row),
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
            let is_looked_at = |row: &&&Stored| of == Of::All || !row.risk.is_empty();
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
        let is_risky = |rows: &BTreeMap<Origin, Stored>| rows.values().any(|row| !row.risk.is_empty());
        all.filter(|(_, rows)| of == Of::All || is_risky(rows)).map(|(id, _)| id).collect()
    }

    pub(crate) fn traces(&self, id: &KeyId) -> Vec<Trace> {
        let trace = |(origin, row): (&Origin, &Stored)| Trace {
            row: light(self.shown(origin, row)),
            route: row.route.clone(),
            settled: row.settled_at().is_some(),
            over: self.is_over(row),
            claimed: self.claimed(id, origin, row),
            tombstone: row.tombstone,
        };
        self.audited(id).into_iter().map(trace).collect()
    }

    /// True if the life of the key is over by this store's wall clock, tombstone included.
    fn is_over(&self, row: &Stored) -> bool {
        let tombstone = match row.phase {
            Phase::Settled(..) => micros(row.tombstone),
            Phase::Claimed | Phase::InDoubt(_) | Phase::Released | Phase::Tombstone => 0,
        };
        let lives = row.due.saturating_sub(row.held).saturating_add(tombstone);
        row.claimed.as_millis().saturating_mul(1_000).saturating_add(lives) <= self.clock.micros()
    }

    /// All rows of a key, by origin; of a replicated and an imported one the later, or both if both
    /// were settled and are not one attempt.
    fn audited(&self, id: &KeyId) -> Vec<(&Origin, &Stored)> {
        let all = self.all(id);
        let counts = |origin: &Origin, row: &Stored| {
            all.get(origin).is_some_and(|later| {
                let two = row.nonce != later.nonce && row.settled_at().is_some();
                std::ptr::eq(*later, row) || (two && later.settled_at().is_some())
            })
        };
        let each = [&self.rows, &self.imports].into_iter().filter_map(|table| table.get(id)).flatten();
        let mut rows: Vec<_> = each.filter(|(origin, row)| counts(origin, row)).collect();
        rows.sort_by_key(|(origin, _)| *origin);
        rows
    }

    pub(crate) fn journal_doubles(&mut self, found: &[Double]) -> Vec<bool> {
        let mut journalled = Vec::new();
        for Double { id, first, second, at_risk, named, reason } in found {
            let turned = (id.clone(), second.origin.clone(), first.origin.clone(), first.token);
            let status = match &first.state {
                State::Settled { answer, .. } => Some(answer.status),
                State::Claimed { .. } | State::InDoubt { .. } | State::Released | State::Tombstone => None,
            };
            let (ran, other) = ((first.origin.clone(), first.token), (second.origin.clone(), second.token));
            let why = Why::of(*at_risk, *named);
            let is_new = !self.doubles.contains(&turned);
            journalled.push(is_new && self.enter_double(id, ran, other, (status, reason, why)));
        }
        journalled
    }
}

/// An answer without its headers and body.
fn light(mut row: Row) -> Row {
    if let State::Settled { answer, .. } = &mut row.state {
        let body = AnswerBody::NotKept;
        *answer = Arc::new(Answer { status: answer.status, headers: Vec::new(), body });
    }
    row
}
