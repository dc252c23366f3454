//! Recovery by probe: asks the upstream if an attempt in doubt happened. And stand-ins: records of
//! this region that end another region's attempts, whose rows only that region writes.
//!
//! "Did not happen" counts only once the attempt is surely over (docs/protocol.md#rule-13). Nothing
//! runs here. A stand-in is written in one statement: no row that is never sent reads as an
//! attempt.

use std::sync::Arc;
use std::time::Duration;

use super::claim::terms;
use super::outcome;
use super::persist::{Fact, Stored, question, store};
use crate::gateway::instance::Gateway;
use crate::gateway::policy::route::Policy;
use crate::gateway::request::ask::Ask;
use crate::gateway::request::problems::Kind;
use crate::gateway::request::reply::Reply;
use crate::gateway::telemetry::metrics;
use crate::gateway::upkeep::store_gate;
use crate::ports::store::{Attempt, ClaimAsk, ClaimReply, StoreError, Terms, Written};
use crate::ports::upkeep::{Ruling, Who};
use crate::ports::{Dice, KeyStore, Ports, Upkeep};
use crate::protocol::decide::{Settlement, Word};
use crate::protocol::key::KeyId;
use crate::protocol::plant::{Check, is_disabled};
use crate::protocol::record::{Answer, Basis, Row};
use crate::protocol::snapshot::Here;

/// Asks about every attempt in doubt, newest first. If none happened, a new one may begin on the
/// returned basis. Otherwise the error is the reply.
pub async fn probe<P: Ports>(
    gateway: &Arc<Gateway<P>>,
    ask: &Ask,
    doubts: Vec<Row>,
    basis: Basis,
) -> Result<Basis, Reply> {
    let mut stays: Option<(Row, Duration)> = None;
    for doubt in doubts {
        let asked = question(gateway, &ask.policy, &ask.id, &doubt, ask.request.target.path());
        let after = match ask.waits(gateway.ports.clock(), asked).await {
            (Word::Happened(answer), _) => return Err(happened(gateway, ask, doubt, basis, answer).await),
            (Word::DidNotHappen, _) => continue,
            (Word::Unknown, over) => over.unwrap_or(Duration::from_secs(1)),
        };
        // Go on: an older attempt may have happened, and then this one's answer is known.
        if stays.as_ref().is_none_or(|(_, longest)| after > *longest) {
            stays = Some((doubt, after));
        }
    }
    match stays {
        Some((doubt, after)) => {
            let after = gateway.jittered(Duration::from_secs(1)).max(after);
            Err(Reply::Refused(Kind::InDoubt.after(after), Some(doubt.expires)))
        }
        None => Ok(basis),
    }
}

/// Stores the answer of an attempt that happened; another region's gets a stand-in.
async fn happened<P: Ports>(
    gateway: &Arc<Gateway<P>>,
    ask: &Ask,
    doubt: Row,
    basis: Basis,
    answer: Arc<Answer>,
) -> Reply {
    let expires = Some(doubt.expires);
    let replay = Settlement {
        answer: answer.clone(),
        age: Duration::ZERO,
        origin: doubt.origin.clone(),
        request_id: doubt.request_id,
        expires: doubt.expires,
    };
    if doubt.origin == gateway.origin {
        let attempt = Attempt { id: ask.id.clone(), token: doubt.token, nonce: doubt.nonce };
        let fact = Fact::Settled(answer, doubt.request_id);
        return match store(gateway, &ask.route, ask.policy.hold, attempt, fact).await {
            Stored::Yes => Reply::Replay(replay),
            Stored::Lost => outcome::stored_instead(gateway, ask).await,
            Stored::NotYet => gateway.unknown(expires),
        };
    }
    let terms = Terms { request_id: doubt.request_id, ..terms(gateway, ask, doubt.nonce) };
    match stand_in(gateway, &ask.id, terms, basis, &Ruling::Settled((*answer).clone()), None).await {
        Ok(()) => Reply::Replay(replay),
        Err(NotWritten::Changed) => Reply::Refused(gateway.later(Kind::InDoubt), expires),
        Err(NotWritten::Store(error)) => {
            Reply::Refused(gateway.store_unavailable(error.to_string()), expires)
        }
    }
}

pub enum NotWritten {
    /// The rows, or this region's rights, changed meanwhile.
    Changed,
    Store(StoreError),
}

/// The terms of a record in the place of another region's row. Its rule says nothing more once the
/// outcome is stored. Route and path are empty if they are not known.
pub fn in_place_of<P: Ports>(
    gateway: &Gateway<P>,
    row: &Row,
    policy: &Policy,
    route: Arc<str>,
    path: String,
) -> Terms {
    Terms {
        nonce: row.nonce,
        fingerprint: row.fingerprint,
        request_id: row.request_id,
        hold: Duration::ZERO,
        settle_time: Duration::ZERO,
        recovery: row.recovery,
        lifetime: gateway.settings.lifetime(policy),
        route,
        path,
        principal: row.principal,
    }
}

/// Ends attempts with their outcome by a record in their place, for which nothing has to be waited.
/// Repeats an unconfirmed write: none is written twice.
pub async fn stand_in<P: Ports>(
    gateway: &Gateway<P>,
    id: &KeyId,
    terms: Terms,
    basis: Basis,
    ruling: &Ruling,
    by: Option<Who<'_>>,
) -> Result<(), NotWritten> {
    let Here::Run(permit) = gateway.here(id) else { return Err(NotWritten::Changed) };
    let nonce = match ruling {
        // Both rows are one attempt: if the other one's answer arrives after all, nothing ran twice.
        Ruling::Settled(_) => terms.nonce,
        Ruling::Released => gateway.ports.dice().nonce(),
    };
    let terms = Terms { nonce, hold: Duration::ZERO, settle_time: Duration::ZERO, ..terms };
    let (id, gate, risk) = (id.clone(), permit.gate, permit.known.at_risk(id));
    let ask = ClaimAsk { id, gate, basis, risk, terms };
    if !permit.view.allows(ask.life()) {
        return Err(NotWritten::Changed);
    }
    if is_disabled(Check::StandInWhole) || is_disabled(Check::NamedAnswered) {
        return in_two(gateway, &ask, ruling).await;
    }
    let store = gateway.store();
    let mut written = metrics::upkeep("stand_in", store.stand_in(&ask, ruling, by)).await;
    if let Err(StoreError::Unknown(_)) = written {
        written = metrics::upkeep("stand_in", store.stand_in(&ask, ruling, by)).await;
    }
    match written {
        Ok(Written::Done) => Ok(()),
        Ok(Written::Lost) => Err(NotWritten::Changed),
        Ok(Written::GateMoved) => {
            // So that the next try goes by the present gate; this try is over in any case.
            let _ = store_gate::look_again(gateway).await;
            Err(NotWritten::Changed)
        }
        Err(error) => Err(NotWritten::Store(error)),
    }
}

/// The variant of the plants: a claim that is never sent, and then the known outcome.
async fn in_two<P: Ports>(gateway: &Gateway<P>, ask: &ClaimAsk, ruling: &Ruling) -> Result<(), NotWritten> {
    let store = gateway.store();
    let Ok(ClaimReply::Won { token, .. }) = store.claim(ask).await else { return Err(NotWritten::Changed) };
    let attempt = Attempt { id: ask.id.clone(), token, nonce: ask.terms.nonce };
    let written = match ruling {
        Ruling::Settled(answer) => store.settle(&attempt, answer).await,
        Ruling::Released => store.release(&attempt).await,
    };
    written.map(|_| ()).map_err(NotWritten::Store)
}
