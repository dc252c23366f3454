//! A key at this region: run, read from its copy, or refused; and looked at anew if it moves.
//!
//! A settled record is final, so any copy of it may be replayed at any time.

use std::sync::Arc;

use super::ask::Ask;
use super::follow::{Begun, begin, follow};
use super::problems::{Kind, Problem};
use super::reply::{Reply, Step};
use crate::gateway::instance::Gateway;
use crate::gateway::telemetry::metrics;
use crate::gateway::upkeep::catching_up;
use crate::ports::Ports;
use crate::protocol::authority::Closed;
use crate::protocol::decide::{same_request, settlement};
use crate::protocol::record::{Basis, Reading};
use crate::protocol::region::RegionName;
use crate::protocol::snapshot::Here;

/// Looks at a key while its conditions change, at most. One move changes the gate up to three times
/// (given up, adopted, opened). A key that stays must not get the answer that it moves.
const LOOKS: u32 = 4;

pub enum Served {
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
            Here::Closed(Closed::CatchingUp) => Box::pin(catching_up::serve(gateway, ask)).await,
            Here::Closed(Closed::Moving) => copy_or(gateway, ask, gateway.moving()).await,
            Here::Closed(Closed::NoLease) => {
                copy_or(gateway, ask, gateway.later(Kind::NotAuthoritative)).await
            }
            Here::Elsewhere(owner) => return Served::Elsewhere(owner),
            Here::Nobody => Step::Ended(Reply::Refused(gateway.later(Kind::HomeUnavailable), None)),
            Here::Unfit(why) => {
                metrics::claim_failed(&ask.route, ask.id.tenant());
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

/// The reply by the local copy: only a settled record decides. A silent store is no reason to
/// refuse: the owner is asked.
pub async fn local_copy<P: Ports>(gateway: &Arc<Gateway<P>>, ask: &Ask) -> Option<Reply> {
    let found = metrics::store("look_up", &ask.route, gateway.ports.clock(), gateway.rows(&ask.id));
    let Reading::Settled(row) = gateway.read(found.await.ok()?) else { return None };
    let reply = match same_request(&row, &ask.fingerprint, ask.principal) {
        true => Reply::Replay(settlement(&row)?),
        false => Reply::Refused(ask.policy.mismatch.into(), Some(row.expires)),
    };
    metrics::local_replay();
    metrics::duplicate(ask.id.tenant());
    Some(reply)
}
