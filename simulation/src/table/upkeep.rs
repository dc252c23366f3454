//! One region's Postgres in memory: the statements that `onceway::ports::upkeep` promises.
//!
//! Each statement is one transaction here too.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::time::Duration;

use onceway::ports::store::{Attempt, ClaimAsk, Written};
use onceway::ports::upkeep::{
    Act, ClaimPage, Entry, ForeignPage, KeyStretch, ListedDoubt, OpenAttempt, Place, Reaped, Ruling, Who,
};
use onceway::protocol::key::{Key, KeyId, Tenant};
use onceway::protocol::plant::{Check, is_disabled};
use onceway::protocol::record::{Basis, Recovery, Row, State, Token};
use onceway::protocol::region::Origin;

use super::{Stored, Table, micros, settled};

/// The delay of a row that must not be deleted yet.
pub(super) const LATER: Duration = Duration::from_secs(600);

enum Fate {
    Expire { until: Option<i64> },
    Forget,
    Keep,
}

impl Table {
    pub(crate) fn reap(&mut self, most: u32, away: Option<u64>) -> Reaped {
        let mut reaped = Reaped::default();
        if !self.is_open() {
            return reaped;
        }
        let now = self.now();
        let due: Vec<KeyId> = self.orders.due(now).take(most as usize).cloned().collect();
        for id in due {
            let Some(own) = self.own(&id).cloned() else { continue };
            let waits = away.is_some_and(|epoch| own.row.token.epoch >= epoch);
            match self.fate(&id, &own, now) {
                Fate::Forget if !waits => {
                    self.forgotten = self.forgotten.max(own.row.token);
                    self.delete(&id);
                    reaped.forgotten += 1;
                }
                Fate::Expire { until } => {
                    let due = own.due.saturating_add(micros(own.tombstone)).max(until.unwrap_or(i64::MIN));
                    self.forgotten = self.forgotten.max(own.row.token);
                    let row = Row { state: State::Tombstone, ..own.row };
                    self.write(&id, Stored { row, due, ..own });
                    reaped.expired += 1;
                }
                Fate::Forget | Fate::Keep => {
                    self.write(&id, Stored { due: now.saturating_add(micros(LATER)), ..own });
                    reaped.kept += 1;
                }
            }
        }
        reaped
    }

    fn fate(&self, id: &KeyId, own: &Stored, now: i64) -> Fate {
        let rows = self.all(id);
        let others = || rows.values().copied().filter(|row| row.row.origin != self.origin);
        let masks = others().any(|row| !row.is_final());
        // Two released rows must not wait for one another.
        let covers = others().any(Stored::is_open);
        let settled = |row: &Stored| matches!(row.row.state, State::Settled { .. });
        let above = |row: &&Stored| row.is_final() && (!settled(row) || row.row.token > own.row.token);
        let life = |row: &Stored| self.ends(id, row).saturating_add(micros(row.tombstone));
        let until = others().filter(above).map(life).max();
        let hides = others().any(|row| settled(row) && row.row.token <= own.row.token);
        let over = own.left(now).is_zero();
        match own.row.state {
            State::Tombstone if masks && !is_disabled(Check::MaskingKept) => Fate::Keep,
            State::Tombstone => Fate::Forget,
            State::Settled { .. } => Fate::Expire { until: None },
            _ if hides => Fate::Keep,
            State::Released if until.is_some() || !covers => Fate::Expire { until },
            State::InDoubt { .. } if until.is_some() => Fate::Expire { until },
            State::Claimed { .. } if until.is_some() && over => Fate::Expire { until },
            State::Released | State::InDoubt { .. } | State::Claimed { .. } => Fate::Keep,
        }
    }

    pub(crate) fn claims(&self, after: Option<Place>, older: Duration, most: u32) -> ClaimPage {
        let last = self.now().saturating_sub(micros(older));
        let after = after.map_or(i64::MIN, |Place(held)| held);
        let mut stretch: Vec<(&KeyId, &Stored)> =
            self.orders.held(after, last).filter_map(|id| Some((id, self.own(id)?))).collect();
        // With ties: none of them may be left behind.
        let most = most as usize;
        if let Some(end) = most.checked_sub(1).and_then(|at| stretch.get(at)).map(|(_, row)| row.held) {
            stretch.retain(|(_, row)| row.held <= end);
        }
        let claimed = stretch.iter().filter(|(_, row)| row.is_claimed());
        ClaimPage {
            claims: claimed.map(|(id, row)| self.open_attempt(id, row)).collect(),
            through: stretch.last().map(|(_, row)| Place(row.held)),
            more: stretch.len() >= most,
        }
    }

    pub(crate) fn doubts(&self, after: Option<&KeyId>, most: u32) -> Vec<ListedDoubt> {
        let now = self.now();
        let runs_again = |origin: &Origin, row: &Stored| {
            *origin == self.origin && row.is_claimed() && !row.left(now).is_zero()
        };
        let listed = self.doubts.iter().filter(|(id, _)| after.is_none_or(|after| *id > after));
        let listed = listed.filter_map(|(id, (since, excerpt))| {
            let open = self.unanswered(id).into_iter().filter(|(origin, row)| !runs_again(origin, row));
            let (_, row) = open.max_by_key(|(origin, row)| (row.row.token, Reverse(*origin)))?;
            let open = self.open_attempt(id, row);
            Some(ListedDoubt { open, since: *since, excerpt: excerpt.clone() })
        });
        listed.take(most as usize).collect()
    }

    pub(crate) fn excerpt(&self, id: &KeyId) -> Option<String> {
        self.doubts.get(id).and_then(|(_, excerpt)| excerpt.clone())
    }

    /// The open rows of a key that no final row and no superseding row answers for.
    fn unanswered(&self, id: &KeyId) -> Vec<(&Origin, &Stored)> {
        let rows = self.all(id);
        if rows.values().any(|row| row.is_final()) {
            return Vec::new();
        }
        let named = |origin: &Origin, token: Token| rows.values().any(|row| row.names(origin, token));
        let open = rows.iter().filter(|(_, row)| row.is_open());
        let open = open.filter(|(origin, row)| !named(origin, row.row.token));
        open.map(|(origin, row)| (*origin, *row)).collect()
    }

    pub(crate) fn foreign(&self, after: Option<&KeyId>, most: u32) -> ForeignPage {
        let mut page = ForeignPage::default();
        let mut looked_at = 0;
        let ids: BTreeSet<&KeyId> = self.rows.keys().chain(self.imports.keys()).collect();
        for id in ids.into_iter().filter(|id| after.is_none_or(|after| *id > after)) {
            let others = self.all(id).keys().filter(|origin| ***origin != self.origin).count();
            if others == 0 {
                continue;
            }
            looked_at += others;
            page.through = Some(id.clone());
            if self.unanswered(id).iter().any(|(origin, _)| **origin != self.origin) {
                page.open.push(id.clone());
            }
            page.more = looked_at >= most as usize;
            if page.more {
                break;
            }
        }
        page
    }

    pub(crate) fn enlist(&mut self, ids: &[KeyId]) {
        let since = self.date();
        ids.iter().for_each(|id| {
            self.doubts.entry(id.clone()).or_insert((since, None));
        });
    }

    pub(crate) fn delist(&mut self, ids: &[KeyId]) {
        for id in ids {
            if !self.own(id).is_some_and(Stored::is_open) {
                self.doubts.remove(id);
            }
        }
    }

    pub(crate) fn unlist(&mut self) -> u64 {
        let mut doubts = std::mem::take(&mut self.doubts);
        doubts.retain(|id, _| !self.unanswered(id).is_empty());
        self.doubts = doubts;
        self.doubts.len() as u64
    }

    pub(crate) fn live_keys(&self, tenant: &Tenant, after: Option<&Key>, most: u32) -> KeyStretch {
        let own =
            self.rows.iter().filter(|(id, rows)| id.tenant() == tenant && rows.contains_key(&self.origin));
        let after = own.map(|(id, _)| id.key()).filter(|key| after.is_none_or(|after| *key > after));
        let keys: Vec<&Key> = after.take(most as usize).collect();
        let through = keys.last().filter(|_| keys.len() == most as usize).map(|key| (*key).clone());
        KeyStretch { keys: keys.len() as u64, through }
    }

    pub(crate) fn rule(&mut self, attempt: &Attempt, act: &Act) -> Written {
        let now = self.now();
        let over = self.own(&attempt.id).filter(|own| own.is_open()).is_some_and(|own| {
            let answered = matches!(own.row.state, State::InDoubt { status: Some(_), .. });
            let over = own.left(now).is_zero();
            match &act.ruling {
                Ruling::Settled(_) => answered || over,
                Ruling::Released => over && own.past(now) >= own.row.settle_time,
            }
        });
        if !self.is_open() {
            return Written::GateMoved;
        }
        if !over {
            return Written::Lost;
        }
        let (kind, written) = match &act.ruling {
            Ruling::Settled(answer) => ("settled-by-hand", self.settle(attempt, answer)),
            Ruling::Released => ("released-by-hand", self.release(attempt)),
        };
        if written == Written::Done {
            self.doubts.remove(&attempt.id);
            let by = Who { actor: &act.actor, reason: &act.reason };
            self.enter(Some(&attempt.id), kind, Some(attempt.token), by);
        }
        written
    }

    pub(crate) fn change_rule(&mut self, attempts: &[Attempt], rule: Recovery, by: Who<'_>) -> u64 {
        if !self.is_open() {
            return 0;
        }
        let mut changed = 0;
        for attempt in attempts {
            let same = |own: &&Stored| own.is_of(attempt.token, attempt.nonce);
            let Some(mut own) = self.own(&attempt.id).filter(same).cloned() else { continue };
            if own.is_open() && !own.is_claimed() && own.row.recovery != rule {
                own.row.recovery = rule;
                self.write(&attempt.id, own);
                self.enter(Some(&attempt.id), "rule-by-hand", Some(attempt.token), by);
                changed += 1;
            }
        }
        changed
    }

    /// A record in the place of others' attempts: like a claim, but final or released at once.
    pub(crate) fn stand_in(&mut self, ask: &ClaimAsk, ruling: &Ruling, by: Option<Who<'_>>) -> Written {
        let now = self.now();
        let own = self.own(&ask.id);
        let stood = own.filter(|own| own.row.nonce == ask.nonce).is_some_and(|own| match ruling {
            Ruling::Settled(said) => {
                matches!(&own.row.state, State::Settled { answer, .. } if answer.status == said.status)
            }
            Ruling::Released => matches!(own.row.state, State::Released),
        });
        if stood {
            return Written::Done;
        }
        if !self.is_open() || ask.gate != self.version {
            self.history.stale += 1;
            return Written::GateMoved;
        }
        let Basis::Known { own: seen, over, attempt } = &ask.basis else { return Written::Lost };
        if !self.own_yields(own, *seen, now) || !self.others_yield(&ask.id, over, *attempt) {
            return Written::Lost;
        }
        let mut named = over.clone();
        let kept = own.into_iter().flat_map(|own| own.row.over.clone());
        named.extend(kept.filter(|(origin, _)| over.iter().all(|(known, _)| known != origin)));
        let accepted = own.is_some_and(|own| own.row.accepted);
        let (state, at, kind) = match ruling {
            Ruling::Settled(said) => (settled(said.clone()), Some(self.clock.micros()), "settled-by-hand"),
            Ruling::Released => (State::Released, None, "released-by-hand"),
        };
        let row = self.row(ask, state, named, self.next_attempt(*attempt), accepted);
        let token = row.row.token;
        self.write(&ask.id, Stored { settled: at, ..row });
        self.doubts.remove(&ask.id);
        if let Some(by) = by {
            self.enter(Some(&ask.id), kind, Some(token), by);
        }
        Written::Done
    }

    pub(crate) fn note(&mut self, kind: &str, reason: &str) {
        self.enter(None, kind, None, Who { actor: "", reason });
    }

    pub(crate) fn journal(&self, id: &KeyId) -> Vec<Entry> {
        let about = self.journal.iter().rev().filter(|(about, _)| about.as_ref() == Some(id));
        about.map(|(_, entry)| entry.clone()).take(100).collect()
    }

    /// All journal entries that belong to no key, oldest first.
    pub(crate) fn notes(&self) -> Vec<Entry> {
        self.journal.iter().filter(|(about, _)| about.is_none()).map(|(_, entry)| entry.clone()).collect()
    }

    pub(super) fn enter(&mut self, id: Option<&KeyId>, kind: &str, token: Option<Token>, by: Who<'_>) {
        let text = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        let (at, kind, actor, reason) = (self.date(), kind.to_owned(), text(by.actor), text(by.reason));
        let entry = Entry { at, kind, token, request_id: None, status: None, actor, reason, explained: None };
        self.journal.push((id.cloned(), entry));
        self.flushed();
    }

    fn open_attempt(&self, id: &KeyId, row: &Stored) -> OpenAttempt {
        let (route, path) = (row.route.clone(), row.path.clone());
        OpenAttempt { id: id.clone(), row: self.shown(row), route, path }
    }
}
