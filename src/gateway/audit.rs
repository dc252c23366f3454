//! The audit: keys that ran at risk, those that ran twice, and answers that came too late.
//!
//! A key that the window alone allowed carries the lost region's name in its own record. Once that region's rows have come, records are
//! compared: a key with another region's record too is journalled as a double, with both, and logged as an error, once for the region,
//! whichever of its gateways looks first. Where a store that was replaced has a part in it, every region that has both records does so. The count is the journal's, so a gateway that dies takes none of it along.
//! Neighbours: `ports::audit` compares and journals in one statement, [`super::status`] has the life of one key, `cli::audit` prints. It must
//! not change any record: both answers stay as they are.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use serde::Serialize;

use super::operator::{self, JournalEntry};
use super::status::RowStatus;
use super::{Gateway, metrics, status};
use crate::ports::audit::{Finding, RunAtRisk};
use crate::ports::peers::{Question, Told};
use crate::ports::store::StoreError;
use crate::ports::upkeep::Place;
use crate::ports::{Audit as _, Clock, Peers, Ports};
use crate::protocol::key::KeyId;
use crate::protocol::record::{Row, State};
use crate::protocol::region::{Origin, RegionName};

/// Runs at risk in one look.
const STRETCH: u32 = 1_000;
/// Rows of escrow in one look.
/// How long another region may take to tell of a key.
const TELL_WITHIN: Duration = Duration::from_secs(2);

/// One page of the keys that ran at risk in a region.
#[derive(Clone, Debug, Serialize)]
pub struct AuditPage {
    /// The region.
    pub region: String,
    /// The keys, in order.
    pub runs: Vec<RunStatus>,
    /// Whether more follow.
    pub more: bool,
    /// What to ask for the next page with; absent on the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// A key that the window alone allowed to run.
#[derive(Clone, Debug, Serialize)]
pub struct RunStatus {
    /// The tenant.
    pub tenant: String,
    /// The key.
    pub key: String,
    /// The route of its claim.
    pub route: String,
    /// Lost regions that may have run it too.
    pub risk: Vec<String>,
    /// The own record.
    pub own: RowStatus,
    /// Records of other regions: none so far means that no other run is known.
    pub others: Vec<RowStatus>,
    /// `clean`: no other run is known of; `double`: this region and another one have an answer; `possible`: both have a record, and
    /// one of them no answer.
    pub verdict: &'static str,
}

/// One page of the doubles and late answers in a region's journal.
#[derive(Clone, Debug, Serialize)]
pub struct FindingsPage {
    /// The region.
    pub region: String,
    /// The entries, oldest first.
    pub findings: Vec<FindingStatus>,
    /// What to ask for the next page with; absent on the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// A double or a late answer.
#[derive(Clone, Debug, Serialize)]
pub struct FindingStatus {
    /// The tenant.
    pub tenant: String,
    /// The key.
    pub key: String,
    /// What the journal says.
    #[serde(flatten)]
    pub entry: JournalEntry,
}

/// The life of one key, over all regions.
#[derive(Clone, Debug, Serialize)]
pub struct KeyLife {
    /// What each region's store shows; the region asked first.
    pub regions: BTreeMap<String, serde_json::Value>,
    /// Regions that did not answer, and why: what they know is missing here.
    pub silent: BTreeMap<String, String>,
}

/// Starts the audit. It ends when the gateway is dropped.
pub(super) fn start<P: Ports>(gateway: &Arc<Gateway<P>>) {
    tokio::spawn(audit_loop(Arc::downgrade(gateway)));
}

async fn audit_loop<P: Ports>(gateway: Weak<Gateway<P>>) {
    // Where the next look at runs at risk begins: round and round, a stretch at a time.
    let mut after = None;
    while let Some(gateway) = gateway.upgrade() {
        let begun = gateway.ports.clock().now();
        if gateway.store_is_open() && !gateway.is_stopping() {
            after = look(&gateway, after).await;
        }
        let next = begun + gateway.settings.timings.reap;
        gateway.rest(next).await;
    }
}

/// Looks at one stretch, and says where the next one begins: where this one did, if it failed.
async fn look<P: Ports>(gateway: &Gateway<P>, after: Option<KeyId>) -> Option<KeyId> {
    let replaced: Vec<Origin> = gateway.view().retired().keys().cloned().collect();
    let found = gateway.ports.store().audit(after.as_ref(), STRETCH, &replaced);
    let next = match metrics::upkeep("audit", found).await {
        Ok(page) => {
            for double in &page.doubles {
                let (ran, other) = (&double.at_risk, &double.other);
                tracing::error!(key = %double.id.digest(), at_risk = %ran.origin, at_risk_token = %ran.token, other = %other.origin, other_token = %other.token, "a key ran in two regions: see `onceway audit`");
            }
            page.through.filter(|_| page.more)
        }
        Err(error) => {
            tracing::warn!(%error, "runs at risk could not be audited: a key that ran twice may be in no journal yet");
            after
        }
    };
    // Those that a settlement met and journalled itself are among them.
    if let Ok(count) = metrics::upkeep("audit", gateway.ports.store().doubles()).await {
        metrics::doubles(count);
    }
    next
}

impl<P: Ports> Gateway<P> {
    /// One page of the keys that ran at risk here, after a key.
    ///
    /// # Errors
    /// The store does not answer.
    pub async fn audit(&self, after: Option<&KeyId>, most: u32) -> Result<AuditPage, StoreError> {
        let store = self.ports.store();
        let mut runs = store.runs_at_risk(after, most.saturating_add(1)).await?;
        let more = runs.len() > most as usize;
        runs.truncate(most as usize);
        let ids: Vec<KeyId> = runs.iter().map(|run| run.id.clone()).collect();
        let rows = crate::ports::KeyStore::look_up(store, &ids).await?;
        let next = ids.last().filter(|_| more).map(cursor);
        let of = |(run, mut rows): (RunAtRisk, Vec<Row>)| {
            rows.retain(|row| row.origin != self.origin);
            RunStatus {
                tenant: run.id.tenant().to_string(),
                key: run.id.key().as_str().to_owned(),
                route: run.route.to_string(),
                risk: run.row.risk.iter().map(ToString::to_string).collect(),
                own: status::row_status(&run.row),
                others: rows.iter().map(status::row_status).collect(),
                verdict: verdict(&run.row, &rows),
            }
        };
        let runs = runs.into_iter().zip(rows).map(of).collect();
        Ok(AuditPage { region: self.settings.me.to_string(), runs, more, next })
    }

    /// One page of the doubles and late answers in the region's journal, oldest first; those from longer ago than `back` are left out.
    ///
    /// # Errors
    /// The store does not answer.
    pub async fn findings(
        &self,
        after: Option<Place>,
        back: Duration,
        most: u32,
    ) -> Result<FindingsPage, StoreError> {
        let found = self.ports.store().findings(after, back, most).await?;
        let next = found.last().filter(|_| found.len() >= most as usize).map(|last| last.place.0.to_string());
        let of = |found: Finding| FindingStatus {
            tenant: found.id.tenant().to_string(),
            key: found.id.key().as_str().to_owned(),
            entry: operator::journal_entry(found.entry),
        };
        let findings = found.into_iter().map(of).collect();
        Ok(FindingsPage { region: self.settings.me.to_string(), findings, next })
    }

    /// The life of one key over all regions: claims, epochs, attempts, answers and what the journals say.
    ///
    /// # Errors
    /// The own store does not answer.
    pub async fn key_life(self: &Arc<Self>, id: &KeyId) -> Result<KeyLife, StoreError> {
        let own = self.key_status(id).await?;
        let own = serde_json::to_value(own).unwrap_or_default();
        let mut regions = BTreeMap::from([(self.settings.me.to_string(), own)]);
        let mut silent = BTreeMap::new();
        let names: Vec<RegionName> = self.view().members().keys().cloned().collect();
        for name in names.into_iter().filter(|name| *name != self.settings.me) {
            let question = Question::Key { id: id.clone() };
            match self.ports.peers().ask(&name, question, TELL_WITHIN).await {
                Ok(Told::Key(text)) => {
                    regions.insert(name.to_string(), serde_json::from_str(&text).unwrap_or_default());
                }
                Ok(Told::Refused(why)) => {
                    silent.insert(name.to_string(), why);
                }
                Ok(other) => {
                    silent.insert(name.to_string(), format!("it answered {other:?}"));
                }
                Err(error) => {
                    silent.insert(name.to_string(), error.to_string());
                }
            }
        }
        Ok(KeyLife { regions, silent })
    }
}

/// Where a list goes on after this key, as it is asked for.
pub(super) fn cursor(id: &KeyId) -> String {
    format!("{}/{}", id.tenant(), id.key().as_str())
}

/// What another region's records say of an own run at risk, by the rule of `ports::audit`: nothing where nothing happened here, where both
/// are one attempt, or where the own run superseded the other one knowingly.
fn verdict(own: &Row, others: &[Row]) -> &'static str {
    let (ran, answered) = match own.state {
        State::Released => (false, false),
        State::Claimed { .. } | State::InDoubt { .. } => (true, false),
        State::Settled { .. } | State::Tombstone => (true, true),
    };
    let superseded =
        |row: &Row| own.over.iter().any(|(origin, token)| *origin == row.origin && *token >= row.token);
    let (mut double, mut possible) = (false, false);
    for row in others.iter().filter(|row| ran && row.nonce != own.nonce) {
        match row.state {
            State::Settled { .. } => (double, possible) = (double || answered, true),
            State::Claimed { .. } | State::InDoubt { .. } => possible |= !superseded(row),
            State::Released | State::Tombstone => {}
        }
    }
    match (double, possible) {
        (true, _) => "double",
        (false, true) => "possible",
        (false, false) => "clean",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::digest::Digest32;
    use crate::protocol::fingerprint::Fingerprint;
    use crate::protocol::record::{Answer, AnswerBody, Nonce, RequestId, Token};
    use crate::protocol::region::Origin;
    use crate::protocol::time::Date;

    fn row(origin: &str, nonce: u128, state: State) -> Row {
        let raw = Digest32::from_slice(&[0; 32]).unwrap();
        Row {
            origin: Origin::parse(origin).unwrap(),
            token: Token { epoch: 3, attempt: 1 },
            nonce: Nonce(nonce),
            fingerprint: Fingerprint { raw, canonical: None },
            state,
            over: Vec::new(),
            risk: Vec::new(),
            request_id: RequestId(nonce),
            expires: Date(0),
            principal: None,
            accepted: false,
            seen: Date(0),
        }
    }

    fn settled() -> State {
        let answer = Answer { status: 201, headers: Vec::new(), body: AnswerBody::NotKept };
        State::Settled { answer: Arc::new(answer), age: Duration::ZERO, expired: false }
    }

    fn doubt() -> State {
        State::InDoubt { status: None, left: Duration::ZERO, past: Duration::ZERO }
    }

    #[test]
    fn a_verdict_goes_by_what_happened_on_both_sides() {
        let cases = [
            (settled(), settled(), "double"),
            (settled(), doubt(), "possible"),
            (doubt(), settled(), "possible"),
            (State::Tombstone, settled(), "double"),
            (State::Released, settled(), "clean"),
            (settled(), State::Released, "clean"),
            (settled(), State::Tombstone, "clean"),
        ];
        for (own, other, expected) in cases {
            let said = verdict(&row("b#1", 1, own.clone()), &[row("a#1", 2, other.clone())]);
            assert_eq!(said, expected, "{own:?} {other:?}");
        }
        assert_eq!(verdict(&row("b#1", 1, settled()), &[]), "clean");
    }

    #[test]
    fn one_attempt_and_what_was_superseded_knowingly_are_clean() {
        let same = [row("a#1", 1, settled())];
        assert_eq!(verdict(&row("b#1", 1, settled()), &same), "clean");
        let other = row("a#1", 2, doubt());
        let mut own = row("b#1", 1, settled());
        own.over = vec![(other.origin.clone(), other.token)];
        assert_eq!(verdict(&own, std::slice::from_ref(&other)), "clean");
        let later = Row { token: Token { epoch: 3, attempt: 2 }, ..other };
        assert_eq!(verdict(&own, &[later]), "possible");
    }
}
