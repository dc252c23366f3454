//! Finds keys that two regions ran, and journals each once for the region.
//!
//! A double is found within one pass over all records after its second row arrived. No request
//! waits for these statements: they use the connections for background work.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{MutexGuard, PoisonError, Weak};
use std::time::Duration;

use super::applied::applied;
use super::looks::{AuditStatus, Looks};
use crate::gateway::instance::Gateway;
use crate::gateway::telemetry::metrics::{self, observe};
use crate::ports::audit::{Counted, Double, Of};
use crate::ports::store::StoreError;
use crate::ports::{Audit as _, Ports};
use crate::protocol::double::{self, Held, Trace, Twice, Why};
use crate::protocol::key::KeyId;
use crate::protocol::record::{Row, State};
use crate::protocol::region::Origin;

/// Records in one look: some milliseconds of work.
const STRETCH: u32 = 2_000;
/// Records in one look if the store is slow.
const LEAST: u32 = 50;
/// Rests after a look, in multiples of the look's time: the search has 3 % of the time.
const RESTS: u32 = 32;
const PAUSE: Duration = Duration::from_millis(50);
const BATCH: usize = 200;

/// Looks through all records, a stretch at a time, in a few per cent of the store's time. It goes
/// by rows alone: two settled attempts are a double, whether or not a claim names a risk. Only the
/// journal outlives a restart.
pub async fn comb_loop<P: Ports>(gateway: Weak<Gateway<P>>) {
    let mut comb = Comb { after: None, most: STRETCH };
    while let Some(gateway) = gateway.upgrade() {
        let rest = match gateway.store_is_open() && !gateway.is_stopping() {
            true => comb.look(&gateway).await,
            false => gateway.settings.timings.reap,
        };
        metrics::set(observe::AUDIT_AGE, gateway.audit_age().as_secs_f64());
        let next = gateway.now() + rest;
        gateway.rest(next).await;
    }
}

struct Comb {
    after: Option<KeyId>,
    most: u32,
}

impl Comb {
    /// Looks a stretch further. Returns the time to rest.
    async fn look<P: Ports>(&mut self, gateway: &Gateway<P>) -> Duration {
        let begun = gateway.now();
        if self.after.is_none() {
            let mut looks = gateway.looks();
            (looks.begun, looks.status.looked_at) = (Some(begun), 0);
        }
        let through = look(gateway, Of::All, self.after.as_ref(), self.most).await;
        let now = gateway.now();
        let rest = (now.since(begun) * RESTS).max(PAUSE);
        match through {
            Ok(Some(through)) => {
                (self.after, self.most) = (Some(through), (self.most * 2).min(STRETCH));
                return rest;
            }
            Ok(None) => {
                self.after = None;
                gateway.looks().ended(now);
                metrics::count(observe::AUDIT_PASSES);
            }
            // Perhaps the store cannot do so much within the time limit of a call.
            Err(_) => self.most = (self.most / 2).max(LEAST),
        }
        rest.max(gateway.settings.timings.reap)
    }
}

/// Looks at one stretch, and journals its doubles. Returns where the next one begins, if any.
pub async fn look<P: Ports>(
    gateway: &Gateway<P>,
    of: Of,
    after: Option<&KeyId>,
    most: u32,
) -> Result<Option<KeyId>, StoreError> {
    let stretch = metrics::upkeep("audit", gateway.store().stretch(of, after, most)).await?;
    if of == Of::All {
        gateway.looks().status.looked_at += stretch.looked_at;
    }
    journal(gateway, stretch.shared).await?;
    Ok(stretch.through.filter(|_| stretch.more))
}

/// Looks at keys whose rows have just arrived. After a failure the search finds them later.
pub async fn look_at<P: Ports>(gateway: &Gateway<P>, ids: &[KeyId]) {
    let Ok(traces) = metrics::upkeep("audit", gateway.store().traces(ids)).await else { return };
    let shared = ids.iter().cloned().zip(traces).filter(|(_, traces)| traces.len() > 1);
    let _ = journal(gateway, shared.collect()).await;
}

/// Counts the journal's doubles, also those that a settlement journalled itself.
pub async fn count<P: Ports>(gateway: &Gateway<P>) {
    if let Ok(counted) = metrics::upkeep("audit", gateway.store().doubles()).await {
        metrics::doubles(&counted);
        let Counted { doubles, unexplained } = counted;
        let mut looks = gateway.looks();
        (looks.status.doubles, looks.status.unexplained) = (Some(doubles), Some(unexplained));
    }
}

/// Reads until when each store held its rows. Rows to compare by it must be read later: one that is
/// still here then was not forgotten before.
pub async fn held<P: Ports>(gateway: &Gateway<P>) -> Result<Held, StoreError> {
    Ok(Held { beats: applied(gateway.store()).await?.dates, ..nothing_held(gateway) })
}

fn nothing_held<P: Ports>(gateway: &Gateway<P>) -> Held {
    Held { me: gateway.origin.clone(), beats: BTreeMap::new(), views: gateway.snapshot().views.clone() }
}

async fn journal<P: Ports>(gateway: &Gateway<P>, shared: Vec<(KeyId, Vec<Trace>)>) -> Result<(), StoreError> {
    // Heartbeats matter only beside a life that is over, so few looks pay for them.
    let is_over = |traces: &[Trace]| traces.iter().any(|trace| trace.settled && trace.over);
    let (over, mut shared): (Vec<_>, Vec<_>) = shared.into_iter().partition(|(_, traces)| is_over(traces));
    let mut beats = nothing_held(gateway);
    if !over.is_empty() {
        beats = held(gateway).await?;
        let ids: Vec<KeyId> = over.into_iter().map(|(id, _)| id).collect();
        let again = gateway.store().traces(&ids).await?;
        shared.extend(ids.into_iter().zip(again));
    }
    let replaced: BTreeSet<Origin> = gateway.view().retired.keys().cloned().collect();
    let of = |(id, traces): &(KeyId, Vec<Trace>)| doubles_of(id, traces, &beats, &replaced);
    let found: Vec<Double> = shared.iter().flat_map(of).collect();
    for some in found.chunks(BATCH) {
        let journalled = metrics::upkeep("audit", gateway.store().journal_doubles(some)).await?;
        for (double, _) in some.iter().zip(&journalled).filter(|(_, journalled)| **journalled) {
            tell(double);
        }
        if journalled.contains(&true) {
            count(gateway).await;
        }
    }
    Ok(())
}

fn tell(double: &Double) {
    let (key, one, two) = (double.id.digest(), &double.first, &double.second);
    let why = Why::of(double.at_risk, double.named);
    let news = match why {
        Why::Risk | Why::Over => "a key ran in two regions: see `onceway audit`",
        Why::Unexplained => {
            "a key ran in two regions, and nothing explains it: this is a bug, see `onceway audit`"
        }
    };
    tracing::error!(%key, origin = %one.origin, token = %one.token, other = %two.origin, other_token = %two.token, why = why.name(), "{news}");
}

/// The doubles among a key's rows that this region journals: sure ones, runs at its own risk, and
/// its own runs that did not reckon with an older one. For a replaced store's part, which finds
/// nothing any more, each region does so.
fn doubles_of(id: &KeyId, traces: &[Trace], held: &Held, replaced: &BTreeSet<Origin>) -> Vec<Double> {
    let me = &held.me;
    let mut found = Vec::new();
    for (at, one) in traces.iter().enumerate() {
        for other in &traces[at + 1..] {
            let Some(double) = double::compare(one, other, traces, held) else { continue };
            let own = [one, other].into_iter().find(|trace| trace.row.origin == *me);
            let speaks = |own: &Trace| match double.explain() {
                Why::Unexplained => own.settled,
                Why::Risk | Why::Over => !own.row.risk.is_empty(),
            };
            let (first, second) = in_order(&one.row, &other.row, me);
            let gone = |row: &Row| replaced.contains(&row.origin);
            if double.twice == Twice::Surely || own.is_some_and(speaks) || gone(first) || gone(second) {
                found.push(Double {
                    id: id.clone(),
                    first: first.clone(),
                    second: second.clone(),
                    at_risk: double.at_risk,
                    named: double.named,
                    reason: reason(first, second, me, double.explain()),
                });
            }
        }
    }
    found
}

/// The own row comes first, then one that ran at risk, then the lesser name.
fn in_order<'a>(one: &'a Row, other: &'a Row, me: &Origin) -> (&'a Row, &'a Row) {
    let place = |row: &Row| (row.origin != *me, row.risk.is_empty(), row.origin.to_string());
    if place(one) <= place(other) { (one, other) } else { (other, one) }
}

fn reason(first: &Row, second: &Row, me: &Origin, why: Why) -> String {
    let answer = |row: &Row| match &row.state {
        State::Settled { answer, .. } => answer.status.to_string(),
        _unanswered => "none".to_owned(),
    };
    let ran = |row: &Row| {
        let place = if row.origin == *me { "here".to_owned() } else { format!("at {}", row.origin) };
        format!("{place} as {} (answer: {})", row.token, answer(row))
    };
    let why = match why {
        Why::Risk => "one of them ran at risk",
        Why::Over => "one of them knew of the other",
        Why::Unexplained => "nothing explains it: a bug",
    };
    format!("ran {} and {}: {why}", ran(first), ran(second))
}

impl<P: Ports> Gateway<P> {
    pub(in crate::gateway) fn looks(&self) -> MutexGuard<'_, Looks> {
        self.looks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Time since the last whole pass began, or since the gateway began if there was none.
    pub(in crate::gateway) fn audit_age(&self) -> Duration {
        self.now().since(self.looks().whole.unwrap_or(self.begun))
    }

    pub(in crate::gateway) fn audit_status(&self) -> AuditStatus {
        let age_ms = self.audit_age().as_millis() as u64;
        AuditStatus { age_ms, ..self.looks().status.clone() }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::protocol::examples::{origin, row, settled};
    use crate::protocol::key::{Key, Tenant};
    use crate::protocol::record::Token;
    use crate::protocol::region::RegionName;

    fn trace(name: &str, nonce: u128, state: State, risk: &[&str]) -> Trace {
        let settled = matches!(state, State::Settled { .. });
        let row = row(origin(name), Token { epoch: nonce as u64, attempt: 1 }, nonce, state);
        let row = Row { risk: risk.iter().map(|name| RegionName::parse(name).unwrap()).collect(), ..row };
        Trace { row, route: "pay".into(), settled, over: false, claimed: None, tombstone: Duration::ZERO }
    }

    fn doubt() -> State {
        State::InDoubt { status: None, left: Duration::ZERO, past: Duration::ZERO }
    }

    /// The pairs that a region journals, and the reason of the first one.
    fn reported(traces: &[Trace], me: &str, replaced: &[&str]) -> (Vec<String>, String) {
        let id = KeyId::new(Tenant::parse("acme").unwrap(), Key::parse("k").unwrap());
        let replaced = replaced.iter().map(|name| origin(name)).collect();
        let held = Held { me: origin(me), beats: BTreeMap::new(), views: Arc::default() };
        let found = doubles_of(&id, traces, &held, &replaced);
        let names = |double: &Double| format!("{} {}", double.first.origin, double.second.origin);
        let reason = found.first().map(|double| double.reason.clone()).unwrap_or_default();
        (found.iter().map(names).collect(), reason)
    }

    #[test]
    fn two_answers_are_journalled_wherever_they_meet() {
        let rows = [trace("a#1", 5, settled(201), &[]), trace("b#1", 6, settled(202), &[])];
        for (me, pair) in [("a#1", "a#1 b#1"), ("b#1", "b#1 a#1"), ("c#1", "a#1 b#1")] {
            assert_eq!(reported(&rows, me, &[]).0, [pair], "{me}");
        }
        let (_, reason) = reported(&rows, "b#1", &[]);
        let expected =
            "ran here as 6.1 (answer: 202) and at a#1 as 5.1 (answer: 201): nothing explains it: a bug";
        assert_eq!(reason, expected);
    }

    #[test]
    fn the_region_that_took_the_risk_journals_unanswered_attempts() {
        let rows = [trace("a#1", 5, doubt(), &[]), trace("b#1", 6, settled(201), &["a"])];
        assert_eq!(reported(&rows, "b#1", &[]).0, ["b#1 a#1"]);
        assert_eq!(reported(&rows, "a#1", &[]).0, [""; 0], "b speaks for itself");
        assert_eq!(reported(&rows, "c#1", &[]).0, [""; 0]);
        for replaced in ["a#1", "b#1"] {
            assert_eq!(reported(&rows, "c#1", &[replaced]).0, ["b#1 a#1"], "{replaced} never does");
        }
        assert!(reported(&rows, "b#1", &[]).1.ends_with("(answer: none): one of them ran at risk"));
    }

    #[test]
    fn the_settling_region_journals_overlooked_attempts() {
        let rows = [trace("a#1", 5, doubt(), &[]), trace("b#1", 6, settled(201), &[])];
        assert_eq!(reported(&rows, "b#1", &[]).0, ["b#1 a#1"]);
        assert_eq!(reported(&rows, "a#1", &[]).0, [""; 0], "b speaks for itself");
        assert!(reported(&rows, "b#1", &[]).1.ends_with("(answer: none): nothing explains it: a bug"));
        let rows = [trace("a#1", 5, settled(201), &[]), trace("b#1", 6, doubt(), &["a"])];
        assert_eq!(reported(&rows, "a#1", &[]).0, [""; 0], "b ran at risk, and says so");
    }

    #[test]
    fn each_pair_starts_with_the_regions_own_row() {
        let rows = [
            trace("a#1", 5, settled(201), &[]),
            trace("b#1", 6, settled(201), &["a"]),
            trace("c#1", 7, settled(201), &["a"]),
        ];
        let (pairs, _) = reported(&rows, "c#1", &[]);
        assert_eq!(pairs, ["b#1 a#1", "c#1 a#1", "c#1 b#1"]);
    }
}
