//! The rows of a key, followed until there is a reply: claim, wait, ask about a doubt, claim again.
//!
//! `protocol::decide` judges the rows. [`super::attempt`] runs what may run.

use std::sync::Arc;
use std::time::Duration;

use super::accept;
use super::ask::{Ask, By};
use super::attempt::claim::{Claimed, claim};
use super::attempt::recover;
use super::attempt::send::run;
use super::problems::Kind;
use super::reply::{Reply, Step};
use crate::gateway::instance::Gateway;
use crate::gateway::telemetry::metrics;
use crate::ports::{Clock, Ports};
use crate::protocol::decide::{Verdict, decide, retry_after};
use crate::protocol::record::{Basis, Reading, Row};
use crate::protocol::snapshot::{Here, Permit};
use crate::protocol::time::Date;

/// Races for its key that one request may lose. After that the client gets `in-progress`.
const ROUNDS: usize = 32;

pub enum Begun {
    Done(Step),
    Found(Vec<Row>),
}

/// Claims under this permit and runs. Or accepts, if no client waits and nothing happened so far
/// (`untouched`).
pub async fn begin<P: Ports>(
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
            metrics::claim_failed(&ask.route, ask.id.tenant());
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
            metrics::claim_failed(&ask.route, ask.id.tenant());
            gateway.store_unavailable(error.to_string())
        }
    };
    Begun::Done(Step::Ended(Reply::Refused(refused, None)))
}

/// Follows the rows of the key until there is a reply.
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

/// The basis of the next claim and if nothing happened so far, or the reply. Waits for the running attempt, and asks about doubts.
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
                let ended = async {
                    tokio::select! {
                        biased;
                        ended = waiter.ended() => Some(ended),
                        () = gateway.ports.clock().sleep_until(attach_until) => None,
                    }
                };
                match ask.waits(gateway.ports.clock(), ended).await {
                    Some(ended) => {
                        metrics::attached("replayed");
                        rows = ended;
                    }
                    None => {
                        metrics::attached("waited_out");
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
            Verdict::KeyReused(expires) => return Err(reused(ask, expires)),
            Verdict::KeyExpired(expires) => return Err(expired(expires)),
        }
    }
}

pub fn running<P: Ports>(gateway: &Gateway<P>, ask: &Ask, left: Duration, expires: Date) -> Reply {
    let after = retry_after(left.saturating_sub(ask.policy.wait), gateway.typical(&ask.route));
    Reply::Refused(Kind::InProgress.after(after), Some(expires))
}

pub fn reused(ask: &Ask, expires: Date) -> Reply {
    Reply::Refused(ask.policy.mismatch.into(), Some(expires))
}

pub fn expired(expires: Date) -> Reply {
    Reply::Refused(Kind::KeyExpired.problem(), Some(expires))
}

pub fn verdict(ask: &Ask, reading: Reading) -> Verdict {
    decide(reading, &ask.fingerprint, ask.principal)
}
