//! One region's Postgres in memory: keys that ran twice, as `onceway::ports::audit` promises to find them.
//!
//! Neighbours: [`super`] has the rows and settles, [`super::upkeep`] has the journal. Each double is journalled once: for a key, the other
//! origin and its token. It must not judge which answer is served.

use std::sync::Arc;

use onceway::ports::audit::{Double, RunAtRisk};
use onceway::ports::store::{Attempt, Written};
use onceway::protocol::key::KeyId;
use onceway::protocol::record::{Answer, Nonce, Token};
use onceway::protocol::region::Origin;

use super::{Phase, Stored, Table};

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
            self.enter_double(&attempt.id, attempt.token, (origin, token), &reason);
        }
        Written::Lost
    }

    /// Journals a double that was not known yet.
    fn enter_double(&mut self, id: &KeyId, own: Token, other: (Origin, Token), reason: &str) {
        if self.doubles.insert((id.clone(), other.0, other.1)) {
            self.enter(Some(id), "double", Some(own), Some(("", reason)));
        }
    }

    pub(crate) fn runs_at_risk(&self, after: Option<&KeyId>, most: u32) -> Vec<RunAtRisk> {
        let now = self.clock.micros();
        let own = self.rows.keys().filter_map(|id| Some((id, self.own(id)?)));
        let runs = own.filter(|(id, row)| !row.risk.is_empty() && after.is_none_or(|after| *id > after));
        let listed = runs.map(|(id, row)| RunAtRisk {
            id: id.clone(),
            row: row.shown(self.origin.clone(), now, true),
            route: row.route.clone(),
            path: row.path.clone(),
        });
        listed.take(most as usize).collect()
    }

    pub(crate) fn audit(&mut self, most: u32) -> Vec<Double> {
        let now = self.clock.micros();
        let mut found = Vec::new();
        for id in self.rows.keys() {
            let Some(own) = self.own(id).filter(|own| came_to_something(own)) else { continue };
            for (origin, other) in self.all(id) {
                let known = (id.clone(), origin.clone(), other.token);
                if *origin == self.origin || !ran_too(own, origin, other) || self.doubles.contains(&known) {
                    continue;
                }
                found.push(Double {
                    id: id.clone(),
                    own: own.shown(self.origin.clone(), now, true),
                    other: other.shown(origin.clone(), now, false),
                });
            }
        }
        found.truncate(most as usize);
        for double in &found {
            let (own, other) = (double.own.token, double.other.token);
            let reason = format!("ran here at risk as {own} and as {} {other}", double.other.origin);
            self.enter_double(&double.id, own, (double.other.origin.clone(), other), &reason);
        }
        found
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
