//! A key at this region: its rows are followed until there is a reply. Claim, wait, ask about a
//! doubt, claim again; and look at it anew if it moves.
//!
//! `protocol::decide` judges the rows. [`super::attempt`] runs what may run.

use std::sync::Arc;
use std::time::Duration;

use super::accept;
use super::ask::{Ask, By};
use super::attempt::claim::{Claimed, claim};
use super::attempt::recover;
use super::attempt::send::run;
use super::problems::{Kind, Problem};
use super::reply::{Reply, Step};
use crate::gateway::instance::Gateway;
use crate::gateway::telemetry::metrics::{self, observe};
use crate::ports::Ports;
use crate::protocol::authority::Closed;
use crate::protocol::decide::{Verdict, decide, retry_after, same_request, settlement};
use crate::protocol::opening::Hindrance;
use crate::protocol::record::{Basis, Reading, Row};
use crate::protocol::region::RegionName;
use crate::protocol::snapshot::{Here, Permit};
use crate::protocol::time::Date;

/// Races for its key that one request may lose. After that the client gets `in-progress`.
const ROUNDS: usize = 32;

enum Begun {
    Done(Step),
    Found(Vec<Row>),
}

/// Claims under this permit and runs. Or accepts, if no client waits and nothing happened so far
/// (`untouched`).
async fn begin<P: Ports>(
    gateway: &Arc<Gateway<P>>,
    ask: &Ask,
    permit: &Permit,
    basis: Basis,
    untouched: bool,
) -> Begun {
    // A claim finds out by itself if the key is new, but writes it if it is.
    let is_new = matches!(basis, Basis::Absent);
    if is_new && let Err(again) = gateway.may_start_a_key(ask.id.tenant()) {
        return Box::pin(full(gateway, ask, again)).await;
    }
    let accepts = untouched && matches!(ask.by, By::Later { .. });
    let later = accepts.then(|| Box::new(accept::stored(gateway, ask)));
    let claimed = claim(gateway, ask, permit, basis, untouched, later.as_deref()).await;
    if is_new && matches!(claimed, Ok(Claimed::Ours(_))) {
        gateway.started_a_key(ask.id.tenant());
    }
    let step = match claimed {
        Ok(Claimed::Ours(claim)) if accepts => Step::Ended(accept::accepted(gateway, ask, claim.expires)),
        Ok(Claimed::Ours(claim)) => Box::pin(run(gateway, ask, claim)).await,
        Ok(Claimed::Found(rows)) => return Begun::Found(rows),
        Ok(Claimed::Moved) => Step::Again(gateway.moving()),
        Err(problem) => {
            metrics::count_of(observe::CLAIMS_FAILED, &ask.route, ask.id.tenant());
            Step::Ended(Reply::Refused(problem, None))
        }
    };
    Begun::Done(step)
}

/// The rows of a key whose tenant may have no further key: a retry is served as before.
async fn full<P: Ports>(gateway: &Gateway<P>, ask: &Ask, again: Duration) -> Begun {
    let found = gateway.rows(&ask.id);
    let refused = match metrics::store("look_up", &ask.route, gateway.ports.clock(), found).await {
        Ok(rows) if rows.is_empty() => {
            metrics::quota_exceeded(ask.id.tenant(), "live_keys");
            Kind::QuotaExceeded.after(gateway.jittered(again))
        }
        Ok(rows) => return Begun::Found(rows),
        Err(error) => {
            metrics::count_of(observe::CLAIMS_FAILED, &ask.route, ask.id.tenant());
            gateway.store_unavailable(error.to_string())
        }
    };
    Begun::Done(Step::Ended(Reply::Refused(refused, None)))
}

pub async fn follow<P: Ports>(gateway: &Arc<Gateway<P>>, ask: &Ask, mut rows: Vec<Row>) -> Step {
    for _ in 0..ROUNDS {
        let (basis, untouched) = match find_basis(gateway, ask, rows).await {
            Ok(found) => found,
            Err(reply) => return Step::Ended(reply),
        };
        // A new permit each time: the earlier one does not hold after waiting or asking.
        let Here::Run(permit) = gateway.here(&ask.id) else { return Step::Again(gateway.moving()) };
        rows = match begin(gateway, ask, &permit, basis, untouched).await {
            Begun::Done(step) => return step,
            Begun::Found(rows) => rows,
        };
    }
    Step::Ended(Reply::Refused(gateway.later(Kind::InProgress), None))
}

/// The basis of the next claim and if nothing happened so far, or the reply. Waits for the running
/// attempt, and asks about doubts.
async fn find_basis<P: Ports>(
    gateway: &Arc<Gateway<P>>,
    ask: &Ask,
    mut rows: Vec<Row>,
) -> Result<(Basis, bool), Reply> {
    let attach_until = ask.arrived + ask.policy.wait.min(ask.deadline);
    loop {
        if let Some(reply) = accept::standing(gateway, ask, &rows).await {
            return Err(reply);
        }
        let reading = gateway.read(rows);
        let untouched = matches!(reading, Reading::Absent | Reading::Released(..));
        match verdict(ask, reading) {
            Verdict::Claim(basis) => return Ok((basis, untouched)),
            Verdict::Attach(left, expires) => {
                let mut waiter = gateway.attached.join(&ask.id);
                let ended = gateway.before(attach_until, waiter.ended());
                match ask.waits(gateway.ports.clock(), ended).await {
                    Some(ended) => {
                        metrics::count_by(observe::ATTACHED, "result", "replayed");
                        rows = ended;
                    }
                    None => {
                        metrics::count_by(observe::ATTACHED, "result", "waited_out");
                        return Err(running(gateway, ask, left, expires));
                    }
                }
            }
            Verdict::Probe { doubts, basis } => {
                let basis = Box::pin(recover::probe(gateway, ask, doubts, basis)).await?;
                return Ok((basis, false));
            }
            Verdict::Parked(expires) => {
                let after = gateway.jittered(Duration::from_secs(60));
                let parked = Kind::Parked.after(after).because("The key is parked for an operator");
                return Err(Reply::Refused(parked, Some(expires)));
            }
            Verdict::Replay(settlement) => return Err(Reply::Replay(settlement)),
            Verdict::KeyReused(expires) => {
                return Err(Reply::Refused(ask.policy.mismatch.into(), Some(expires)));
            }
            Verdict::KeyExpired(expires) => {
                return Err(Reply::Refused(Kind::KeyExpired.problem(), Some(expires)));
            }
        }
    }
}

fn running<P: Ports>(gateway: &Gateway<P>, ask: &Ask, left: Duration, expires: Date) -> Reply {
    let after = retry_after(left.saturating_sub(ask.policy.wait), gateway.live.load().typical(&ask.route));
    Reply::Refused(Kind::InProgress.after(after), Some(expires))
}

fn verdict(ask: &Ask, reading: Reading) -> Verdict {
    decide(reading, &ask.fingerprint, ask.principal)
}

/// Looks at a key while it changes, at most. One move changes the gate up to three times.
const LOOKS: u32 = 4;

/// The result of a look at a key here.
pub enum Served {
    /// The reply to the client.
    Reply(Reply),
    /// This region owns the key.
    Elsewhere(RegionName),
}

/// Serves a key as far as this region may. If facts that it relied on have changed, it looks again.
// Boxes, here and below: a request would move the room for what few requests come to.
pub async fn serve<P: Ports>(gateway: &Arc<Gateway<P>>, ask: &Ask) -> Served {
    let mut changed = None;
    for look in 0..LOOKS {
        let step = match gateway.here(&ask.id) {
            Here::Run(permit) => match begin(gateway, ask, &permit, Basis::Absent, true).await {
                Begun::Done(step) => step,
                Begun::Found(rows) => {
                    if look == 0 {
                        metrics::duplicate(ask.id.tenant());
                    }
                    follow(gateway, ask, rows).await
                }
            },
            Here::Closed(Closed::CatchingUp) => Box::pin(serve_early(gateway, ask)).await,
            Here::Closed(Closed::Moving) => copy_or(gateway, ask, gateway.moving()).await,
            Here::Closed(Closed::NoLease) => {
                copy_or(gateway, ask, gateway.later(Kind::NotAuthoritative)).await
            }
            Here::Elsewhere(owner) => return Served::Elsewhere(owner),
            Here::Nobody => Step::Ended(Reply::Refused(gateway.later(Kind::HomeUnavailable), None)),
            Here::Unfit(why) => {
                metrics::count_of(observe::CLAIMS_FAILED, &ask.route, ask.id.tenant());
                copy_or(gateway, ask, gateway.unfit(&why)).await
            }
        };
        match step {
            Step::Ended(reply) => return Served::Reply(reply),
            Step::Again(problem) => changed = Some(problem),
        }
    }
    Served::Reply(Reply::Refused(changed.unwrap_or_else(|| gateway.moving()), None))
}

async fn copy_or<P: Ports>(gateway: &Arc<Gateway<P>>, ask: &Ask, problem: Problem) -> Step {
    let copy = Box::pin(local_copy(gateway, ask)).await;
    Step::Ended(copy.unwrap_or(Reply::Refused(problem, None)))
}

/// The reply by the local copy, if it is settled: it is final, so any copy may be replayed.
pub async fn local_copy<P: Ports>(gateway: &Arc<Gateway<P>>, ask: &Ask) -> Option<Reply> {
    let found = metrics::store("look_up", &ask.route, gateway.ports.clock(), gateway.rows(&ask.id));
    let Reading::Settled(row) = gateway.read(found.await.ok()?) else { return None };
    let reply = match same_request(&row, &ask.fingerprint, ask.principal) {
        true => Reply::Replay(settlement(&row)?),
        false => Reply::Refused(ask.policy.mismatch.into(), Some(row.expires)),
    };
    metrics::count(observe::LOCAL_REPLAYS);
    metrics::duplicate(ask.id.tenant());
    Some(reply)
}

/// Time that a client stays away if only an operator can lift a hindrance.
const UNTIL_AN_OPERATOR: Duration = Duration::from_secs(60);

/// Serves a gained key that this region may not start yet: rows of earlier owners have not arrived
/// (docs/protocol.md#rule-34). Final records are replayed, and known attempts are waited for. A key
/// without rows here, or a released one, is refused: a row may be on its way. Nothing is recovered.
async fn serve_early<P: Ports>(gateway: &Arc<Gateway<P>>, ask: &Ask) -> Step {
    let found = metrics::store("look_up", &ask.route, gateway.ports.clock(), gateway.rows(&ask.id));
    let rows = match found.await.map_err(|error| gateway.store_unavailable(error.to_string())) {
        Ok(rows) => rows,
        Err(problem) => return Step::Ended(Reply::Refused(problem, None)),
    };
    if !rows.is_empty() {
        metrics::duplicate(ask.id.tenant());
    }
    if let Some(reply) = accept::standing(gateway, ask, &rows).await {
        return Step::Ended(reply);
    }
    let reading = gateway.read(rows);
    let untouched = matches!(reading, Reading::Absent | Reading::Released(..));
    let expires = reading.row().map(|row| row.expires);
    Step::Ended(match verdict(ask, reading) {
        Verdict::Replay(settlement) => Reply::Replay(settlement),
        Verdict::KeyReused(expires) => Reply::Refused(ask.policy.mismatch.into(), Some(expires)),
        Verdict::KeyExpired(expires) => Reply::Refused(Kind::KeyExpired.problem(), Some(expires)),
        Verdict::Attach(left, expires) => running(gateway, ask, left, expires),
        Verdict::Claim(basis) if untouched => {
            let Some(permit) = gateway.snapshot().early(&ask.id, &ask.route, &ask.meanings, gateway.now())
            else {
                return Step::Ended(Reply::Refused(missing(gateway), expires));
            };
            return match begin(gateway, ask, &permit, basis, untouched).await {
                Begun::Done(step) => step,
                Begun::Found(_) => Step::Again(missing(gateway)),
            };
        }
        Verdict::Claim(_) | Verdict::Probe { .. } | Verdict::Parked { .. } => {
            let (after, _) = wait(&gateway.snapshot().hindrances);
            Reply::Refused(Kind::InDoubt.after(upward(gateway, after)), expires)
        }
    })
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

/// Time that the hindrances surely last, and if only an operator can lift one.
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
    use crate::protocol::region::{Origin, RegionName};

    use super::*;

    #[test]
    fn a_client_hears_the_longest_wait() {
        let region = || RegionName::parse("eu").unwrap();
        let origin = || Origin { region: region(), generation: 1 };
        let runs = |secs| Hindrance::Window { origin: origin(), left: Duration::from_secs(secs) };
        let import = Hindrance::Import { origin: origin(), from: region(), upto: 9 };
        assert_eq!(wait(&[]), (Duration::from_secs(1), false));
        assert_eq!(wait(&[runs(7), import.clone(), runs(30)]), (Duration::from_secs(30), false));
        assert_eq!(wait(&[import]), (Duration::from_secs(1), false));
        assert_eq!(wait(&[runs(300), Hindrance::Gap(origin())]), (UNTIL_AN_OPERATOR, true));
    }
}
