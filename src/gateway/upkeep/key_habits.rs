//! Watches how each tenant makes its keys, and reports weak habits, at most once an hour for each
//! kind.
//!
//! `protocol::generator` judges. Memory and wait are bounded. No key is kept or shown.

use std::collections::BTreeMap;
use std::sync::{Mutex, TryLockError};
use std::time::Duration;

use crate::gateway::request::ask::Ask;
use crate::gateway::telemetry::metrics;
use crate::ports::Clock;
use crate::protocol::generator::{Habits, Signs, Weakness};
use crate::protocol::key::Tenant;
use crate::protocol::time::Moment;

const SHARDS: usize = 16;
/// Tenants that a shard remembers, at most. The one that was quiet for longest makes room.
const TENANTS: usize = 64;
/// Pause between two log lines about one tenant and one kind of weakness.
const QUIET: Duration = Duration::from_secs(3_600);

#[derive(Default)]
pub struct Generators([Mutex<BTreeMap<Tenant, Watched>>; SHARDS]);

#[derive(Default)]
struct Watched {
    habits: Habits,
    last: Moment,
    said: BTreeMap<Weakness, Moment>,
}

impl Generators {
    /// Shows a tenant's habits to `judge`. Returns the weakness found, and if a log line is due.
    fn watch(
        &self,
        tenant: &Tenant,
        now: Moment,
        judge: impl FnOnce(&mut Habits) -> Option<Weakness>,
    ) -> Option<(Weakness, bool)> {
        let mixed =
            tenant.as_bytes().iter().fold(0_usize, |sum, byte| sum.wrapping_mul(31) + usize::from(*byte));
        let mut shard = match self.0[mixed % SHARDS].try_lock() {
            Ok(shard) => shard,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        if shard.len() >= TENANTS && !shard.contains_key(tenant) {
            let quietest =
                shard.iter().min_by_key(|(_, watched)| watched.last).map(|(tenant, _)| tenant.clone());
            quietest.map(|tenant| shard.remove(&tenant));
        }
        let watched = shard.entry(tenant.clone()).or_default();
        watched.last = now;
        let found = judge(&mut watched.habits)?;
        let due = watched.said.get(&found).is_none_or(|said| now.since(*said) >= QUIET);
        if due {
            watched.said.insert(found, now);
        }
        Some((found, due))
    }

    pub(in crate::gateway) fn admitted(&self, ask: &Ask, clock: &impl Clock) {
        let signs = Signs::of(ask.id.key(), clock.date());
        report(ask, self.watch(ask.id.tenant(), clock.now(), |habits| habits.see(signs)));
    }

    /// Takes in a request that did not match the first one of its key.
    pub(in crate::gateway) fn mismatched(&self, ask: &Ask, clock: &impl Clock) {
        let asked = ask.fingerprint.canonical.unwrap_or(ask.fingerprint.raw);
        let judge = |habits: &mut Habits| habits.mismatch(ask.id.key(), asked);
        report(ask, self.watch(ask.id.tenant(), clock.now(), judge));
    }
}

fn report(ask: &Ask, found: Option<(Weakness, bool)>) {
    let Some((weakness, due)) = found else { return };
    metrics::weak_key(&ask.route, ask.id.tenant(), weakness);
    if due {
        tracing::warn!(
            tenant = %ask.id.tenant(), route = %ask.route, kind = weakness.name(),
            "a client makes its idempotency keys badly: two effects may come to share a key; it should send a fresh UUID for each"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tenant(number: usize) -> Tenant {
        Tenant::parse(&format!("t{number}")).unwrap()
    }

    fn at(seconds: u64) -> Moment {
        Moment::from_nanos(0) + Duration::from_secs(seconds)
    }

    #[test]
    fn a_line_is_due_once_an_hour_for_each_tenant_and_kind() {
        let generators = Generators::default();
        let say = |tenant: &Tenant, seconds, weakness| {
            generators.watch(tenant, at(seconds), |_| Some(weakness)).unwrap().1
        };
        let (one, other) = (tenant(1), tenant(2));
        assert!(say(&one, 0, Weakness::Sequential));
        assert!(!say(&one, 3_599, Weakness::Sequential));
        assert!(say(&one, 3_599, Weakness::ClockLike));
        assert!(say(&other, 3_599, Weakness::Sequential));
        assert!(say(&one, 3_600, Weakness::Sequential));
        assert!(!say(&one, 7_199, Weakness::Sequential));
    }

    #[test]
    fn a_full_table_forgets_the_quietest_tenants() {
        let generators = Generators::default();
        let say = |number: usize, seconds| {
            generators.watch(&tenant(number), at(seconds), |_| Some(Weakness::Sequential)).unwrap().1
        };
        assert!(say(0, 0));
        for number in 1..20_000 {
            say(number, number as u64 / 100);
            assert!(!say(0, number as u64 / 100), "tenant 0 is not quiet");
        }
        let remembered: usize = generators.0.iter().map(|shard| shard.lock().unwrap().len()).sum();
        assert_eq!(remembered, SHARDS * TENANTS);
        assert!(say(1, 200), "tenant 1 was forgotten");
    }

    #[test]
    fn a_busy_shard_blocks_no_caller() {
        let generators = Generators::default();
        let held: Vec<_> = generators.0.iter().map(|shard| shard.lock().unwrap()).collect();
        assert!(generators.watch(&tenant(1), at(0), |_| Some(Weakness::Sequential)).is_none());
        drop(held);
        assert!(generators.watch(&tenant(1), at(0), |_| Some(Weakness::Sequential)).is_some());
    }
}
