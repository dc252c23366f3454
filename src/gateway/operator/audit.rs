//! The audit for people: keys that ran at risk, those that ran twice, and late answers.
//!
//! If only the window allowed a key to run, its record holds the lost region's name. Those records
//! are looked at again and again here. No record is changed: both answers stay as they are.

use std::sync::Weak;
use std::time::Duration;

use serde::Serialize;

use super::key::{self, JournalEntry, RowStatus, cursor};
use crate::gateway::instance::Gateway;
use crate::gateway::upkeep::doubles;
use crate::ports::audit::{Finding, Of, RunAtRisk};
use crate::ports::store::StoreError;
use crate::ports::upkeep::Place;
use crate::ports::{Audit as _, Ports};
use crate::protocol::double::{self, Held, Trace, Twice};
use crate::protocol::key::KeyId;

const STRETCH: u32 = 1_000;

/// One page of the keys that ran at risk in a region.
#[derive(Clone, Debug, Serialize)]
pub struct AuditPage {
    pub region: String,
    pub runs: Vec<RunStatus>,
    pub more: bool,
    /// Cursor of the next page; absent on the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// A key that only the window allowed to run.
#[derive(Clone, Debug, Serialize)]
pub struct RunStatus {
    pub tenant: String,
    pub key: String,
    pub route: String,
    /// Lost regions that may have run it too.
    pub risk: Vec<String>,
    pub own: RowStatus,
    /// Records of other regions. None so far means that no other run is known.
    pub others: Vec<RowStatus>,
    /// - `clean`: no other run is known.
    /// - `double`: this region and another one have an answer.
    /// - `possible`: both have a record, and one of them no answer.
    pub verdict: &'static str,
}

/// One page of the doubles and late answers in a region's journal.
#[derive(Clone, Debug, Default, Serialize)]
pub struct FindingsPage {
    pub region: String,
    pub findings: Vec<FindingStatus>,
    /// Cursor of the next page; absent on the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

#[derive(Clone, Debug, Serialize)]
pub struct FindingStatus {
    pub tenant: String,
    pub key: String,
    #[serde(flatten)]
    pub entry: JournalEntry,
}

pub async fn audit_loop<P: Ports>(gateway: Weak<Gateway<P>>) {
    // Beginning of the next look at runs at risk: round and round, a stretch at a time.
    let mut after = None;
    while let Some(gateway) = gateway.upgrade() {
        let begun = gateway.now();
        if gateway.store_is_open() && !gateway.is_stopping() {
            match doubles::look(&gateway, Of::AtRisk, after.as_ref(), STRETCH).await {
                Ok(next) => after = next,
                // The same stretch is looked at again.
                Err(error) => {
                    tracing::warn!(%error, "runs at risk could not be audited: a key that ran twice may be in no journal yet");
                }
            }
            doubles::count(&gateway).await;
        }
        let next = begun + gateway.settings.timings.reap;
        gateway.rest(next).await;
    }
}

impl<P: Ports> Gateway<P> {
    /// One page of the keys that ran at risk here, after a key.
    pub async fn audit(&self, after: Option<&KeyId>, most: u32) -> Result<AuditPage, StoreError> {
        let store = self.store();
        let mut runs = store.runs_at_risk(after, most.saturating_add(1)).await?;
        let more = runs.len() > most as usize;
        runs.truncate(most as usize);
        let ids: Vec<KeyId> = runs.iter().map(|run| run.id.clone()).collect();
        let held = doubles::held(self).await?;
        let traces = store.traces(&ids).await?;
        let next = ids.last().filter(|_| more).map(cursor);
        let of = |(run, traces): (RunAtRisk, Vec<Trace>)| {
            let others = traces.iter().filter(|trace| trace.row.origin != self.origin);
            RunStatus {
                tenant: run.id.tenant().to_string(),
                key: run.id.key().as_str().to_owned(),
                route: run.route.to_string(),
                risk: run.row.risk.iter().map(ToString::to_string).collect(),
                own: key::row_status(&run.row),
                others: others.map(|trace| key::row_status(&trace.row)).collect(),
                verdict: verdict(&traces, &held),
            }
        };
        let runs = runs.into_iter().zip(traces).map(of).collect();
        Ok(AuditPage { region: self.settings.me.to_string(), runs, more, next })
    }

    /// One page of the region's journal of these, oldest first, none from longer ago than `back`.
    pub async fn findings(
        &self,
        after: Option<Place>,
        back: Duration,
        most: u32,
    ) -> Result<FindingsPage, StoreError> {
        let found = self.store().findings(after, back, most).await?;
        let next = found.last().filter(|_| found.len() >= most as usize).map(|last| last.place.0.to_string());
        let of = |found: Finding| FindingStatus {
            tenant: found.id.tenant().to_string(),
            key: found.id.key().as_str().to_owned(),
            entry: key::journal_entry(found.entry),
        };
        let findings = found.into_iter().map(of).collect();
        Ok(FindingsPage { region: self.settings.me.to_string(), findings, next })
    }
}

fn verdict(rows: &[Trace], held: &Held) -> &'static str {
    let (own, others): (Vec<&Trace>, Vec<&Trace>) =
        rows.iter().partition(|trace| trace.row.origin == held.me);
    let compared = |own| others.iter().filter_map(move |other| double::compare(own, other, rows, held));
    let pairs = own.into_iter().flat_map(compared);
    match pairs.map(|double| double.twice).max() {
        Some(Twice::Surely) => "double",
        Some(Twice::Perhaps) => "possible",
        None => "clean",
    }
}
