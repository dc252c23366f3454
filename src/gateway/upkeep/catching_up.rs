//! Requests for gained keys that this region may not start yet: rows of earlier owners have not
//! arrived.
//!
//! Final records are replayed, and known attempts are waited for. A key without rows here is
//! refused: its row may be on its way. So is a released key, which may have been claimed again
//! (docs/protocol.md#rule-34). Nothing is recovered: a settlement may be on its way, too.

use std::sync::Arc;
use std::time::Duration;

use crate::gateway::instance::Gateway;
use crate::gateway::request::accept;
use crate::gateway::request::ask::Ask;
use crate::gateway::request::follow::{Begun, begin, expired, reused, running, verdict};
use crate::gateway::request::problems::{Kind, Problem};
use crate::gateway::request::reply::{Reply, Step};
use crate::gateway::telemetry::metrics;
use crate::ports::{Clock, Ports};
use crate::protocol::decide::Verdict;
use crate::protocol::opening::Hindrance;
use crate::protocol::record::Reading;
use crate::protocol::time::Date;

/// Time that a client stays away if only an operator can lift a hindrance.
const UNTIL_AN_OPERATOR: Duration = Duration::from_secs(60);

/// Serves such a key as far as possible.
pub(in crate::gateway) async fn serve<P: Ports>(gateway: &Arc<Gateway<P>>, ask: &Ask) -> Step {
    let found = metrics::store("look_up", &ask.route, gateway.ports.clock(), gateway.rows(&ask.id));
    let rows = match found.await {
        Ok(rows) => rows,
        Err(error) => {
            return Step::Ended(Reply::Refused(gateway.store_unavailable(error.to_string()), None));
        }
    };
    if !rows.is_empty() {
        metrics::duplicate(ask.id.tenant());
    }
    if let Some(reply) = accept::standing(gateway, ask, &rows).await {
        return Step::Ended(reply);
    }
    let reading = gateway.read(rows);
    let (untouched, expires) = match &reading {
        Reading::Absent => (true, None),
        Reading::Released(row, _) => (true, Some(row.expires)),
        Reading::InProgress(row) | Reading::InDoubt(row, _) | Reading::Settled(row) | Reading::Gone(row) => {
            (false, Some(row.expires))
        }
    };
    Step::Ended(match verdict(ask, reading) {
        Verdict::Replay(settlement) => Reply::Replay(settlement),
        Verdict::KeyReused(expires) => reused(ask, expires),
        Verdict::KeyExpired(expires) => expired(expires),
        Verdict::Attach(left, expires) => running(gateway, ask, left, expires),
        Verdict::Claim(basis) if untouched => {
            let Some(permit) =
                gateway.snapshot().early(&ask.id, &ask.route, &ask.meanings, gateway.ports.clock().now())
            else {
                return Step::Ended(Reply::Refused(missing(gateway), expires));
            };
            return match begin(gateway, ask, &permit, basis, untouched).await {
                Begun::Done(step) => step,
                Begun::Found(_) => Step::Again(missing(gateway)),
            };
        }
        Verdict::Claim(_) | Verdict::Probe { .. } | Verdict::Parked { .. } => in_doubt(gateway, expires),
    })
}

fn in_doubt<P: Ports>(gateway: &Gateway<P>, expires: Option<Date>) -> Reply {
    let (after, _) = wait(&gateway.snapshot().hindrances);
    Reply::Refused(Kind::InDoubt.after(upward(gateway, after)), expires)
}

fn missing<P: Ports>(gateway: &Gateway<P>) -> Problem {
    // No region is lost: the missing rows are on their way, and here in a moment.
    if gateway.view().lost().next().is_none() {
        return gateway.moving();
    }
    let (after, operator) = wait(&gateway.snapshot().hindrances);
    Kind::HomeUnavailable.after(upward(gateway, after)).because(match operator {
        false => "The key's home is lost, and its last records may still be on their way here",
        true => "The key's home is lost, and its last records may be missing here: an operator has to accept that before new keys run",
    })
}

/// Time that the hindrances surely last, at least a second. Also says if only an operator can lift
/// one.
fn wait(hindrances: &[Hindrance]) -> (Duration, bool) {
    if hindrances.iter().any(Hindrance::needs_operator) {
        return (UNTIL_AN_OPERATOR, true);
    }
    let left = hindrances.iter().filter_map(Hindrance::left);
    (left.max().unwrap_or_default().max(Duration::from_secs(1)), false)
}

/// Adds jitter, so that refused clients do not come back together.
fn upward<P: Ports>(gateway: &Gateway<P>, span: Duration) -> Duration {
    gateway.jittered(span.min(Duration::from_secs(1))) + span.saturating_sub(Duration::from_secs(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::region::{Origin, RegionName};

    #[test]
    fn a_client_hears_the_longest_wait() {
        let region = || RegionName::parse("eu").unwrap();
        let origin = || Origin { region: region(), generation: 1 };
        let runs = |secs| Hindrance::Window { origin: origin(), left: Duration::from_secs(secs) };
        let import = Hindrance::Import { origin: origin(), from: region(), upto: 9 };
        let told = |hindrances: &[Hindrance]| wait(hindrances);
        assert_eq!(told(&[]), (Duration::from_secs(1), false));
        assert_eq!(told(&[runs(7), import.clone(), runs(30)]), (Duration::from_secs(30), false));
        assert_eq!(told(&[import]), (Duration::from_secs(1), false));
        let gap = Hindrance::Gap(origin());
        assert_eq!(told(&[runs(300), gap]), (UNTIL_AN_OPERATOR, true));
    }
}
