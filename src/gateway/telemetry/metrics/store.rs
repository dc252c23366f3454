//! Counts of the store: its calls and their failures, jobs, upkeep, and the search for keys that
//! ran twice.
//!
//! This file must not decide anything.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use metrics::{counter, gauge, histogram};
use tracing::{Instrument, trace_span};

use crate::gateway::telemetry::labels::route_label;
use crate::ports::Clock;
use crate::ports::audit::Counted;
use crate::ports::jobs::JobLoad;
use crate::ports::observe::{self, SPANS};
use crate::ports::store::{Slot, StoreError};
use crate::ports::upkeep::Reaped;

/// Times a store call and counts its failure.
pub(in crate::gateway) async fn store<T>(
    op: &'static str,
    route: &Arc<str>,
    clock: &impl Clock,
    call: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, StoreError> {
    let span = trace_span!(target: SPANS, "store", otel.name = op, otel.kind = "client", op);
    let begun = clock.now();
    let result = call.instrument(span).await;
    let took = clock.now().since(begun).as_secs_f64();
    histogram!(observe::STORE_SECONDS, "op" => op, "route" => route_label(route)).record(took);
    failure(op, &result);
    result
}

/// Counts the failure of a store call that no request waits for.
pub(in crate::gateway) async fn upkeep<T>(
    op: &'static str,
    call: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, StoreError> {
    let result = call.await;
    failure(op, &result);
    result
}

fn failure<T>(op: &'static str, result: &Result<T, StoreError>) {
    let Err(error) = result else { return };
    let kind = match error {
        StoreError::Definite(_) => "definite",
        StoreError::Unknown(_) => "unknown",
    };
    counter!(observe::STORE_ERRORS, "op" => op, "kind" => kind).increment(1);
    tracing::warn!(op, %error, "a store call failed");
}

/// Shows if keys can be run here.
pub(in crate::gateway) fn store_up(up: bool) {
    gauge!(observe::STORE_UP).set(f64::from(u8::from(up)));
}

pub(in crate::gateway) fn job(route: &str, result: &'static str) {
    counter!(observe::JOBS, "route" => route.to_owned(), "result" => result).increment(1);
}

pub(in crate::gateway) fn job_load(load: &JobLoad) {
    gauge!(observe::JOBS_WAITING).set(load.waiting as f64);
    gauge!(observe::JOBS_DEAD).set(load.dead as f64);
    gauge!(observe::JOBS_OLDEST_SECONDS).set(load.oldest.as_secs_f64());
}

pub(in crate::gateway) fn reaped(reaped: &Reaped) {
    let results = [("expired", reaped.expired), ("forgotten", reaped.forgotten), ("kept", reaped.kept)];
    for (result, count) in results {
        counter!(observe::REAPED, "result" => result).increment(count);
    }
}

pub(in crate::gateway) fn swept(result: &'static str) {
    counter!(observe::SWEPT, "result" => result).increment(1);
}

/// Shows how many keys are on the operator's list.
pub(in crate::gateway) fn doubts(count: u64) {
    gauge!(observe::DOUBTS).set(count as f64);
}

/// Shows the replication slots of this region's server. `known` are those shown before: one that
/// was dropped holds nothing any more.
pub(in crate::gateway) fn slots(known: &mut BTreeSet<String>, slots: &[Slot]) {
    for gone in known.iter().filter(|name| slots.iter().all(|slot| slot.name != **name)) {
        slot(gone, 0, false);
    }
    for found in slots {
        slot(&found.name, found.retained, found.lost);
    }
    *known = slots.iter().map(|slot| slot.name.clone()).collect();
}

fn slot(name: &str, retained: u64, lost: bool) {
    gauge!(observe::SLOT_RETAINED_BYTES, "slot" => name.to_owned()).set(retained as f64);
    gauge!(observe::SLOT_LOST, "slot" => name.to_owned()).set(f64::from(u8::from(lost)));
}

/// Counts the doubles in the region's journal: the same number at every gateway of the region, and
/// over restarts. The series begins with the first look at the journal. One that began with zero
/// would seem to grow when a gateway starts.
pub(in crate::gateway) fn doubles(counted: &Counted) {
    counter!(observe::DOUBLES).absolute(counted.doubles);
    counter!(observe::UNEXPLAINED).absolute(counted.unexplained);
}

/// Shows the time since the last whole pass over all records began.
pub(in crate::gateway) fn audit_age(age: Duration) {
    gauge!(observe::AUDIT_AGE).set(age.as_secs_f64());
}

pub(in crate::gateway) fn audit_pass() {
    counter!(observe::AUDIT_PASSES).increment(1);
}
