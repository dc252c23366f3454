//! Escrow: a claim is lodged with the next serving region before anything is sent, and others'
//! here.
//!
//! A destroyed region's claims are known elsewhere: a key without one was never sent.

use std::sync::Arc;

use super::claim::{Claim, terms};
use crate::gateway::authority::register::learn;
use crate::gateway::instance::Gateway;
use crate::gateway::policy::choices::LODGED_WITHIN;
use crate::gateway::policy::route::{Alone, Escrow};
use crate::gateway::request::ask::Ask;
use crate::gateway::telemetry::metrics::{self, observe};
use crate::gateway::upkeep::store_gate;
use crate::ports::authority::{Lodged, Lodging};
use crate::ports::peers::{PeerReply, Question};
use crate::ports::store::{Attempt, GateVersion, StoreError, Written};
use crate::ports::{Escrows, KeyStore, Peers, Ports};
use crate::protocol::authority::GateState;
use crate::protocol::escrow::lodges;
use crate::protocol::plant::{Check, is_disabled};
use crate::protocol::record::{Answer, Row};
use crate::protocol::region::{Origin, RegionName};
use crate::protocol::snapshot::Permit;
use crate::protocol::view::View;

/// Reason why a claim is not lodged. It must not be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotLodged {
    /// The target goes by another view than the claim: look at everything anew.
    Stale,
    /// The target cannot be reached, or there is none.
    Unavailable,
}

/// The rule of this route while no other region serves; `None` if its claims are not lodged. The
/// view decides for all regions; if a file asks for escrow before the view does, it is followed,
/// too. If they differ about a route under escrow, every claim is lodged.
fn alone(view: &View, ask: &Ask) -> Option<Alone> {
    match ask.policy.escrow {
        Escrow::Claim(alone) | Escrow::ClaimAndAnswer(alone) => Some(alone),
        Escrow::Off => lodges(view, &ask.route, &ask.meanings).then_some(Alone::Refuse),
    }
}

/// Lodges a claim, if its route asks for that. Returns the region that has it.
pub async fn lodge<P: Ports>(
    gateway: &Gateway<P>,
    ask: &Ask,
    claim: &Claim,
) -> Result<Option<RegionName>, NotLodged> {
    let Permit { view, .. } = &claim.permit;
    let Some(alone) = alone(view, ask) else { return Ok(None) };
    let Some(target) = view.target(&ask.id) else {
        let (result, lodged) = match alone {
            Alone::Run => ("alone", Ok(None)),
            Alone::Refuse => ("refused", Err(NotLodged::Unavailable)),
        };
        metrics::count_by(observe::ESCROWS, "result", result);
        return lodged;
    };
    let lodging = Lodging {
        id: ask.id.clone(),
        origin: gateway.origin.clone(),
        token: claim.attempt.token,
        terms: terms(gateway, ask, claim.attempt.nonce),
    };
    let question = Question::Lodge(Box::new(lodging));
    let why = match gateway.ports.peers().ask(target, question, LODGED_WITHIN).await {
        Ok(PeerReply::Lodged(Lodged::Done)) => {
            metrics::count_by(observe::ESCROWS, "result", "lodged");
            return Ok(Some(target.clone()));
        }
        Ok(PeerReply::Lodged(Lodged::Superseded)) if Box::pin(stands(gateway, &claim.attempt)).await => {
            // The target has a later attempt of this store, or another one under the same token.
            tracing::error!(key = %ask.id.digest(), %target, "this store has forgotten an attempt that was lodged");
            store_gate::went_back(gateway);
            return Err(NotLodged::Unavailable);
        }
        Ok(PeerReply::Lodged(Lodged::GateMoved | Lodged::Superseded) | PeerReply::Refused(_)) => {
            metrics::count_by(observe::ESCROWS, "result", "stale");
            return Err(NotLodged::Stale);
        }
        Ok(_) => "the peer answered something else".to_owned(),
        Err(error) => error.to_string(),
    };
    metrics::count_by(observe::ESCROWS, "result", "unavailable");
    tracing::warn!(key = %ask.id.digest(), %target, why, "a claim could not be lodged; it is released unsent");
    Err(NotLodged::Unavailable)
}

/// True if the claim is still the key's newest attempt in the own store. Tokens of one store grow:
/// its target knows none beyond, unless this store went back (docs/protocol.md#rule-8).
async fn stands<P: Ports>(gateway: &Gateway<P>, attempt: &Attempt) -> bool {
    let own =
        |row: &Row| row.origin == gateway.origin && (row.token, row.nonce) == (attempt.token, attempt.nonce);
    gateway.rows(&attempt.id).await.is_ok_and(|rows| rows.iter().any(own))
}

/// Takes back a claim that was never sent, in the background and once. If it stays lodged and this
/// region is lost, it is in doubt: that costs an answer, not safety.
pub fn void<P: Ports>(gateway: &Arc<Gateway<P>>, ask: &Ask, claim: &Claim) {
    let view = &claim.permit.view;
    let (Some(_), Some(target)) = (alone(view, ask), view.target(&ask.id).cloned()) else { return };
    let (gateway, question) = (gateway.clone(), Question::Void(claim.attempt.clone()));
    tokio::spawn(async move {
        if let Err(error) = gateway.ports.peers().ask(&target, question, LODGED_WITHIN).await {
            tracing::info!(%target, %error, "an escrow could not be taken back");
        }
    });
}

/// Lodges the answer beside its claim, if the route asks for that, before the client gets it.
pub async fn lodge_answer<P: Ports>(gateway: &Gateway<P>, ask: &Ask, claim: &Claim, answer: &Arc<Answer>) {
    let (Some(target), Escrow::ClaimAndAnswer(_)) = (&claim.lodged, ask.policy.escrow) else { return };
    let question = Question::LodgeAnswer { attempt: claim.attempt.clone(), answer: answer.clone() };
    match gateway.ports.peers().ask(target, question, LODGED_WITHIN).await {
        Ok(PeerReply::Done) => metrics::count_by(observe::ESCROWS, "result", "answer_lodged"),
        Ok(_) | Err(_) => metrics::count_by(observe::ESCROWS, "result", "answer_failed"),
    }
}

/// Checks that this region is the target of that claim, under the view of its gate.
fn belongs(state: &GateState, me: &RegionName, from: &RegionName, lodging: &Lodging) -> Result<(), String> {
    if is_disabled(Check::EscrowGate) {
        return Ok(());
    }
    let view = &state.view;
    if view.epoch() != lodging.token.epoch {
        let (here, there) = (view.epoch(), lodging.token.epoch);
        return Err(format!("this region goes by epoch {here}, the claim by {there}"));
    }
    if view.origin(from).as_ref() != Some(&lodging.origin) {
        return Err("the claim is of another origin than its sender's".to_owned());
    }
    if view.owner(&lodging.id) != Some(from) {
        return Err("the sender does not own the key".to_owned());
    }
    if view.target(&lodging.id) != Some(me) {
        return Err("this region is not where the key's claims are lodged".to_owned());
    }
    Ok(())
}

impl<P: Ports> Gateway<P> {
    /// Stores a claim of another region, unless they go by different views. Its statement compares
    /// that, too: no escrow of a view older than the gate's is stored (docs/protocol.md#rule-37).
    pub(in crate::gateway) async fn lodged(
        self: &Arc<Self>,
        from: &RegionName,
        lodging: Lodging,
    ) -> PeerReply {
        let mut refused = "the store is closed".to_owned();
        for _ in 0..2 {
            let Some((gate, state)) = self.gate_state() else { break };
            match belongs(&state, &self.settings.me, from, &lodging) {
                Err(why) => refused = why,
                Ok(()) => match self.keep_lodging(&lodging, gate).await {
                    Ok(Lodged::GateMoved) => refused = "the gate moved".to_owned(),
                    Ok(lodged) => return PeerReply::Lodged(lodged),
                    Err(error) => return PeerReply::Refused(error.to_string()),
                },
            }
            if lodging.token.epoch > state.view.epoch() {
                learn::from_peer(self, from).await;
            } else if store_gate::look_again(self).await.is_err() {
                break;
            }
        }
        tracing::info!(%from, key = %lodging.id.digest(), refused, "refused an escrow");
        PeerReply::Refused(refused)
    }

    /// Stores a lodging, and again if the first try is not confirmed: nothing is stored twice.
    async fn keep_lodging(&self, lodging: &Lodging, gate: GateVersion) -> Result<Lodged, StoreError> {
        match metrics::upkeep("lodge", self.store().lodge(lodging, gate)).await {
            Err(StoreError::Unknown(_)) => metrics::upkeep("lodge", self.store().lodge(lodging, gate)).await,
            other => other,
        }
    }

    /// Stores the answer to a claim that is lodged here, or has become an own record. A fact is
    /// never refused for its epoch.
    pub(in crate::gateway) async fn answer_lodged(
        self: &Arc<Self>,
        from: &RegionName,
        attempt: &Attempt,
        answer: &Arc<Answer>,
    ) -> PeerReply {
        let Some(origin) = self.origin_then(from, attempt.token.epoch) else { return no_such_region() };
        let store = self.store();
        let mut written = metrics::upkeep("lodge", store.lodge_answer(&origin, attempt, answer)).await;
        if written == Ok(Written::Lost) && self.was_its_key(from, attempt) {
            written = metrics::upkeep("settle", store.settle(attempt, answer)).await;
        }
        match written {
            Ok(Written::Done) => PeerReply::Done,
            Ok(Written::Lost) => PeerReply::Refused("no such claim is lodged here".to_owned()),
            Ok(Written::GateMoved) => PeerReply::Refused("the store is not approved yet".to_owned()),
            Err(error) => PeerReply::Refused(error.to_string()),
        }
    }

    /// Takes back a claim that was lodged here and never sent, even if it has become an own record.
    pub(in crate::gateway) async fn voided(
        self: &Arc<Self>,
        from: &RegionName,
        attempt: &Attempt,
    ) -> PeerReply {
        let Some(origin) = self.origin_then(from, attempt.token.epoch) else { return no_such_region() };
        let store = self.store();
        let mut voided = metrics::upkeep("lodge", store.void(&origin, attempt)).await.map(drop);
        if voided.is_ok() && self.view().epoch() > attempt.token.epoch && self.was_its_key(from, attempt) {
            voided = metrics::upkeep("release", store.release(attempt)).await.map(drop);
        }
        voided.map_or_else(|error| PeerReply::Refused(error.to_string()), |()| PeerReply::Done)
    }

    fn origin_then(&self, region: &RegionName, epoch: u64) -> Option<Origin> {
        let then = self.known_view(epoch).unwrap_or_else(|| self.view());
        then.origin(region)
    }

    /// True if the sender owned the key in the token's epoch. Then a record here under that token
    /// is a lodged claim of the sender.
    fn was_its_key(&self, from: &RegionName, attempt: &Attempt) -> bool {
        self.known_view(attempt.token.epoch).is_some_and(|then| then.owner(&attempt.id) == Some(from))
    }
}

fn no_such_region() -> PeerReply {
    PeerReply::Refused("the sender is not a region of the view".to_owned())
}

#[cfg(test)]
mod tests {
    use onceway_lab::contract::escrow::lodging_of;

    use super::*;
    use crate::protocol::change::Change;
    use crate::protocol::examples::{abc, name as region};
    use crate::protocol::key::{Key, KeyId, Tenant};
    use crate::protocol::record::{Nonce, Token};

    fn view() -> View {
        View::founding(1, abc(), Default::default(), Default::default())
    }

    /// A claim that region a makes under that view, for a key whose target is region b.
    fn lodging(view: &View) -> Lodging {
        let of_a = |id: &KeyId| view.owner(id) == Some(&region("a")) && view.target(id) == Some(&region("b"));
        let keys = (0..).map(|number| Key::parse(&format!("key-{number}")).unwrap());
        let ids = keys.map(|key| KeyId::new(Tenant::parse("acme").unwrap(), key));
        let token = Token { epoch: view.epoch(), attempt: 1 };
        lodging_of({ ids }.find(of_a).unwrap(), view.origin(&region("a")).unwrap(), token, Nonce(1))
    }

    /// The answer of region b to a claim that `from` lodges, after that change of the claim.
    fn judged(from: &str, change: impl FnOnce(&mut Lodging)) -> Result<(), String> {
        let view = Arc::new(view());
        let mut lodging = lodging(&view);
        change(&mut lodging);
        belongs(&GateState::founded(view), &region("b"), &region(from), &lodging)
    }

    /// A claim under another origin would not become a record once the sender's store is lost. Its
    /// absence would then prove that nothing was sent.
    #[test]
    fn a_claim_belongs_at_its_keys_target_under_one_view() {
        type Edit = fn(&mut Lodging);
        let table: [(&str, Edit, &str); 9] = [
            ("a", |_| (), ""),
            ("a", |lodging| lodging.token.epoch = 0, "goes by epoch 1"),
            ("a", |lodging| lodging.token.epoch = 2, "goes by epoch 1"),
            ("a", |lodging| lodging.origin.generation = 0, "of another origin"),
            ("a", |lodging| lodging.origin.generation = 2, "of another origin"),
            ("a", |lodging| lodging.origin.generation = u32::MAX, "of another origin"),
            ("a", |lodging| lodging.origin.region = region("c"), "of another origin"),
            ("z", |lodging| lodging.origin.region = region("z"), "of another origin"),
            ("c", |lodging| lodging.origin = view().origin(&region("c")).unwrap(), "does not own"),
        ];
        for (row, (from, change, expected)) in table.into_iter().enumerate() {
            let why = judged(from, change).err().unwrap_or_default();
            assert!(why.contains(expected) && why.is_empty() == expected.is_empty(), "{row}: {why}");
        }
        let first = Arc::new(view());
        let next = GateState::founded(Arc::new(first.next(&Change::Kill).unwrap()));
        assert!(belongs(&next, &region("b"), &region("a"), &lodging(&first)).is_err());
        let here = belongs(&GateState::founded(first.clone()), &region("c"), &region("a"), &lodging(&first));
        assert!(here.unwrap_err().contains("not where"));
    }
}
