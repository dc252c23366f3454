//! One region's Postgres in memory: what `onceway::ports::audit` promises to those who reconcile.
//!
//! Neighbours: [`super`] has the rows and settles, [`super::upkeep`] has the journal. Each double is journalled once: for a key, the
//! run at risk's origin, the other one and its token; each late answer once: for its attempt. It must not judge which answer is served.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use onceway::ports::audit::{Double, DoublesPage, Finding, History, RunAtRisk, Told};
use onceway::ports::store::{Attempt, Written};
use onceway::ports::upkeep::{Entry, Place};
use onceway::protocol::key::KeyId;
use onceway::protocol::plant::{Plant, removed};
use onceway::protocol::record::{Answer, AnswerBody, Nonce, RequestId, State, Token};
use onceway::protocol::region::Origin;
use onceway::protocol::time::Date;

use super::{Phase, Stored, Table, micros};

/// Another origin's final row.
pub(super) struct Settlement {
    origin: Origin,
    token: Token,
    nonce: Nonce,
    answer: Arc<Answer>,
}

impl Table {
    /// The final row of another origin, if this attempt's own row is still open: the highest token's.
    pub(super) fn settled_elsewhere(&self, attempt: &Attempt) -> Option<Settlement> {
        let own = self.own(&attempt.id)?;
        let is_open = matches!(own.phase, Phase::Claimed | Phase::InDoubt(_));
        if !is_open || own.token != attempt.token || own.nonce != attempt.nonce {
            return None;
        }
        let rows = self.all(&attempt.id).into_iter().filter(|(origin, _)| **origin != self.origin);
        let settled = rows.filter_map(|(origin, row)| match &row.phase {
            Phase::Settled(answer, _) => Some(Settlement {
                origin: origin.clone(),
                token: row.token,
                nonce: row.nonce,
                answer: answer.clone(),
            }),
            Phase::Claimed | Phase::InDoubt(_) | Phase::Released | Phase::Tombstone => None,
        });
        settled.max_by(|a, b| a.token.cmp(&b.token).then_with(|| b.origin.cmp(&a.origin)))
    }

    /// The own row takes over the answer that others may have replayed already, and the journal keeps both (6d). Where it is the same
    /// attempt's, as after a conversion of escrow, nothing ran twice.
    pub(super) fn take_over(&mut self, attempt: &Attempt, first: Settlement, answer: &Answer) -> Written {
        let now = self.clock.micros();
        let Settlement { origin, token, nonce, answer: kept } = first;
        let reason = format!("{origin} settled {token} with {kept:?}; {} got {answer:?}", attempt.token);
        self.end(attempt, |_| Some(Some(Phase::Settled(kept, now))));
        if nonce != attempt.nonce {
            let ran = (self.origin.clone(), attempt.token);
            self.enter_double(&attempt.id, ran, (origin, token), (Some(answer.status), &reason));
        }
        Written::Lost
    }

    /// Journals a double that was not known yet.
    fn enter_double(
        &mut self,
        id: &KeyId,
        ran: (Origin, Token),
        other: (Origin, Token),
        (status, reason): (Option<u16>, &str),
    ) {
        if self.doubles.insert((id.clone(), ran.0, other.0, other.1)) && !removed(Plant::Journal) {
            self.enter(Some(id), "double", Some(ran.1), Some(("", reason)));
            self.amend(|entry| entry.status = status);
        }
    }

    pub(crate) fn late(&mut self, attempt: &Attempt, request_id: RequestId, answer: &Answer) -> bool {
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
        self.amend(|entry| (entry.status, entry.request_id) = (Some(answer.status), Some(request_id)));
        true
    }

    /// Says more in the newest entry.
    fn amend(&mut self, more: impl FnOnce(&mut Entry)) {
        if let Some((_, entry)) = self.journal.last_mut() {
            more(entry);
        }
    }

    pub(crate) fn doubles(&self) -> u64 {
        self.journal.iter().filter(|(_, entry)| entry.kind == "double").count() as u64
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

    pub(crate) fn histories(&self, after: Option<&KeyId>, most: u32) -> Vec<History> {
        let journalled = self.journal.iter().filter_map(|(id, _)| id.as_ref());
        let ids: BTreeSet<&KeyId> = self.rows.keys().chain(self.imports.keys()).chain(journalled).collect();
        let page = ids.into_iter().filter(|id| after.is_none_or(|after| *id > after)).take(most as usize);
        page.map(|id| self.history_of(id)).collect()
    }

    fn history_of(&self, id: &KeyId) -> History {
        let now = self.clock.micros();
        let rows = self.all(id).into_iter().map(|(origin, stored)| {
            let imported = self
                .rows
                .get(id)
                .and_then(|rows| rows.get(origin))
                .is_none_or(|replicated| !std::ptr::eq(replicated, stored));
            let mut row = stored.shown(origin.clone(), now, *origin == self.origin);
            if let State::Settled { answer, .. } = &mut row.state {
                let body = AnswerBody::NotKept;
                *answer = Arc::new(Answer { status: answer.status, headers: Vec::new(), body });
            }
            let settled = match stored.phase {
                Phase::Settled(_, at) => Some(Date(at.div_euclid(1_000))),
                Phase::Claimed | Phase::InDoubt(_) | Phase::Released | Phase::Tombstone => None,
            };
            let claimed = (!imported).then(|| Date(stored.held_at.div_euclid(1_000)));
            Told { row, route: stored.route.clone(), path: stored.path.clone(), claimed, settled, imported }
        });
        let about = self.journal.iter().filter(|(about, _)| about.as_ref() == Some(id));
        let journal = about.map(|(_, entry)| entry.clone()).collect();
        History { id: id.clone(), rows: rows.collect(), journal }
    }

    pub(crate) fn runs_at_risk(&self, after: Option<&KeyId>, most: u32) -> Vec<RunAtRisk> {
        let now = self.clock.micros();
        let own = self.orders.risky().filter_map(|id| Some((id, self.own(id)?)));
        let runs = own.filter(|(id, _)| after.is_none_or(|after| *id > after));
        let listed = runs.map(|(id, row)| RunAtRisk {
            id: id.clone(),
            row: row.shown(self.origin.clone(), now, true),
            route: row.route.clone(),
            path: row.path.clone(),
        });
        listed.take(most as usize).collect()
    }

    pub(crate) fn audit(&mut self, after: Option<&KeyId>, most: u32, replaced: &[Origin]) -> DoublesPage {
        let mut page = DoublesPage::default();
        let mut looked_at = 0;
        for (id, runs) in self.runs_behind(after, !replaced.is_empty()) {
            looked_at += runs.len();
            for (origin, run) in runs {
                let counts =
                    |other: &Origin, theirs: &Stored| self.is_told(replaced, (origin, run), (other, theirs));
                page.doubles.extend(self.doubles_of(&id, origin, run, counts));
            }
            page.through = Some(id);
            page.more = looked_at >= most as usize;
            if page.more {
                break;
            }
        }
        let place = |double: &Double| {
            let [ran, other] = [&double.at_risk, &double.other].map(|row| row.origin.to_string());
            (double.id.clone(), double.at_risk.origin != self.origin, ran, other)
        };
        page.doubles.sort_by_cached_key(place);
        for double in &page.doubles {
            let (ran, other) = (&double.at_risk, &double.other);
            let place =
                if ran.origin == self.origin { "here".to_owned() } else { format!("as {}", ran.origin) };
            let reason =
                format!("ran {place} at risk as {} and as {} {}", ran.token, other.origin, other.token);
            let status = match &ran.state {
                State::Settled { answer, .. } => Some(answer.status),
                State::Claimed { .. } | State::InDoubt { .. } | State::Released | State::Tombstone => None,
            };
            let (ran, other) = ((ran.origin.clone(), ran.token), (other.origin.clone(), other.token));
            self.enter_double(&double.id, ran, other, (status, &reason));
        }
        page
    }

    /// The runs at risk behind a key, by key: the own ones, or those of all origins.
    fn runs_behind<'a>(
        &'a self,
        after: Option<&'a KeyId>,
        of_all: bool,
    ) -> impl Iterator<Item = (KeyId, Vec<(&'a Origin, &'a Stored)>)> {
        let ids: BTreeSet<&KeyId> = match of_all {
            true => self.rows.keys().chain(self.imports.keys()).collect(),
            false => self.orders.risky().collect(),
        };
        let behind = ids.into_iter().filter(move |id| after.is_none_or(|after| *id > after));
        let runs = behind.map(move |id| {
            let at_risk = |(origin, row): &(&Origin, &Stored)| {
                !row.risk.is_empty() && (of_all || **origin == self.origin)
            };
            (id.clone(), self.all(id).into_iter().filter(at_risk).collect::<Vec<_>>())
        });
        runs.filter(|(_, runs)| !runs.is_empty())
    }

    /// Whether a run at risk is to be told beside a row that ran too: the own one always, another origin's where a replaced store has a part. Where
    /// both ran at risk and each counts beside the other, the own one is the first, else the one whose name is; where only one of them
    /// does, that one is told whatever its name.
    fn is_told(
        &self,
        replaced: &[Origin],
        (origin, run): (&Origin, &Stored),
        (other, theirs): (&Origin, &Stored),
    ) -> bool {
        let either = || !came_to_something(theirs) || !ran_too(theirs, origin, run);
        *origin == self.origin
            || (replaced.contains(origin) || replaced.contains(other))
                && (either() || (*other != self.origin && origin.to_string() < other.to_string()))
    }

    /// The doubles of one run, if it was at risk, that are not in the journal yet.
    fn doubles_of(
        &self,
        id: &KeyId,
        origin: &Origin,
        run: &Stored,
        counts: impl Fn(&Origin, &Stored) -> bool,
    ) -> Vec<Double> {
        if !came_to_something(run) {
            return Vec::new();
        }
        let now = self.clock.micros();
        let shown = |origin: &Origin, row: &Stored| row.shown(origin.clone(), now, *origin == self.origin);
        let others = self.all(id).into_iter().filter(|(other, theirs)| {
            *other != origin
                && ran_too(run, other, theirs)
                && counts(other, theirs)
                && !self.doubles.contains(&(id.clone(), origin.clone(), (*other).clone(), theirs.token))
                && !self.doubles.contains(&(id.clone(), (*other).clone(), origin.clone(), run.token))
        });
        let double = |(other, theirs)| Double {
            id: id.clone(),
            at_risk: shown(origin, run),
            other: shown(other, theirs),
        };
        others.map(double).collect()
    }
}

fn came_to_something(own: &Stored) -> bool {
    !own.risk.is_empty() && matches!(own.phase, Phase::InDoubt(_) | Phase::Settled(..) | Phase::Tombstone)
}

fn ran_too(own: &Stored, origin: &Origin, other: &Stored) -> bool {
    let superseded = || own.over.iter().any(|(named, token)| named == origin && *token >= other.token);
    own.nonce != other.nonce
        && match other.phase {
            Phase::Settled(..) => true,
            Phase::Claimed | Phase::InDoubt(_) => !superseded(),
            Phase::Released | Phase::Tombstone => false,
        }
}
