//! The invariants about what upstreams see: who may send, and what comes of it (3, 4, 5, 6 and the rules of fencing tokens).
//!
//! Neighbours: [`super::records`] says what a send stands on, [`super::views`] under which gate. It must not believe a gateway: what counts is
//! what was durable before the send.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use onceway::protocol::key::KeyId;
use onceway::protocol::region::Origin;
use onceway::protocol::view::{Standing, View};

use super::records::{Claim, Records};
use super::views::Views;
use super::{Found, Invariant};
use crate::upstream::Attempted;
use crate::words::key;

/// What is known of sends.
#[derive(Default)]
pub(super) struct Sends {
    /// The sends of each key that stood on a claim, in the order in which they arrived.
    before: BTreeMap<KeyId, Vec<Attempted>>,
    /// The effects on each key, in the order in which they were begun.
    ran: BTreeMap<KeyId, Vec<Attempted>>,
}

impl Sends {
    /// An attempt reached an upstream.
    pub(super) fn sent(&mut self, sent: Attempted, views: &Views, records: &Records, found: &mut Found) {
        let Some(claim) = sent_is_claimed(&sent, records, found) else { return };
        sent_is_lodged(&sent, claim, views, records, found);
        sent_before_the_loss(&sent, views, found);
        sent_while_owned(&sent, claim, views, records, found);
        let earlier = self.before.entry(sent.id.clone()).or_default();
        for other in earlier.iter() {
            sent_in_order(&sent, other, found);
            other_was_known(&sent, claim, other, records, found);
        }
        asks_the_same(&sent, claim, earlier, records, found);
        earlier.push(sent);
    }

    /// An effect was begun.
    pub(super) fn happened(
        &mut self,
        effect: &Attempted,
        reruns: &BTreeSet<Arc<str>>,
        views: &Views,
        records: &Records,
        found: &mut Found,
    ) {
        let ran = self.ran.entry(effect.id.clone()).or_default();
        let others = std::mem::take(ran);
        *ran = others.iter().cloned().chain([effect.clone()]).collect();
        if !others.is_empty() {
            second_effect_is_accounted_for(effect, &others, reruns, views, records, found);
            let earlier = self.before.get(&effect.id).map(Vec::as_slice).unwrap_or_default();
            lodged_claims_are_asked_for(effect, earlier, reruns, views, records, found);
        }
    }
}

/// A send, as texts name it.
fn what(sent: &Attempted, found: &Found) -> String {
    let Attempted { at, by, id, token, body: _ } = sent;
    format!("{} {token} by {by} at {}", key(id), found.moment(*at))
}

/// 4: each send has its claim durable before it. Returns the claim.
fn sent_is_claimed<'a>(sent: &Attempted, records: &'a Records, found: &mut Found) -> Option<&'a Claim> {
    let claim = records.claim(sent);
    if claim.is_none() {
        let text = format!("{} was sent without a claim", what(sent, found));
        found.push(Invariant::ClaimedBeforeSent, sent.at, text);
    }
    claim
}

/// 4: and, on a route under escrow, its claim lodged with the next region.
fn sent_is_lodged(sent: &Attempted, claim: &Claim, views: &Views, records: &Records, found: &mut Found) {
    let Some(view) = views.of_epoch(sent.token.epoch) else { return };
    let escrowed = view.escrow().contains_key(&claim.record.route);
    let owed = escrowed && view.owner(&sent.id) == Some(&sent.by) && view.target(&sent.id).is_some();
    if owed && !records.is_lodged(sent, &claim.origin) {
        let text = format!("{} was sent without its escrow", what(sent, found));
        found.push(Invariant::ClaimedBeforeSent, sent.at, text);
    }
}

/// 3: nothing is sent by a region that somebody goes by the loss of.
fn sent_before_the_loss(sent: &Attempted, views: &Views, found: &mut Found) {
    if let Some(since) = views.ended(&sent.by, sent.token.epoch).filter(|since| *since < sent.at) {
        let since = found.moment(since);
        let text = format!("{} was sent though the region was lost at {since}", what(sent, found));
        found.push(Invariant::OneSender, sent.at, text);
    }
}

/// 3: the key was the region's all the time since its claim: whoever slept while it was another's
/// must not send it (docs/protocol.md#rule-9).
fn sent_while_owned(sent: &Attempted, claim: &Claim, views: &Views, records: &Records, found: &mut Found) {
    let Some(at) = records.claimed(sent, claim.store) else { return };
    let gates = views.gates_between(claim.store, at, sent.at);
    let lost = gates.iter().find(|gate| gate.state.view.owner(&sent.id) != Some(&sent.by));
    if let Some(gate) = lost {
        let (sent_so, since) = (what(sent, found), found.moment(gate.at));
        let text = format!("{sent_so} was sent though the key was another's at {since}, after its claim");
        found.push(Invariant::OneSender, sent.at, text);
    }
}

/// 3: attempts of a key are sent in the order of their tokens.
fn sent_in_order(sent: &Attempted, other: &Attempted, found: &mut Found) {
    if other.token >= sent.token {
        let (one, Attempted { by, token, .. }) = (what(sent, found), other);
        let text = format!("{one} was sent after {token} by {by} at {}", found.moment(other.at));
        found.push(Invariant::OneSender, sent.at, text);
    }
}

/// T2: whoever is sent after another region's attempt names it, was claimed at risk, or came after that attempt was released. What it names may
/// have named that attempt in its turn, and was claimed only after that one's wait.
fn other_was_known(sent: &Attempted, claim: &Claim, other: &Attempted, records: &Records, found: &mut Found) {
    if other.by == sent.by || other.token >= sent.token {
        return;
    }
    let record = &claim.record;
    let known =
        !record.risk.is_empty() || records.names(record, other) || records.is_released(other, sent.at);
    if !known {
        let text = format!(
            "{} knew nothing of {} by {} and runs at no risk",
            what(sent, found),
            other.token,
            other.by
        );
        found.push(Invariant::KnewOfOthers, sent.at, text);
    }
}

/// 16: what is sent asks what the newest attempt asked that it knew of: one that its claim names,
/// or that was claimed in the same store. Where two that knew nothing of one another asked for
/// different things, it is the newer one that counts (docs/protocol.md#rule-3).
fn asks_the_same(
    sent: &Attempted,
    claim: &Claim,
    earlier: &[Attempted],
    records: &Records,
    found: &mut Found,
) {
    let here = |other: &Attempted| {
        other.by == sent.by && records.claimed(other, claim.store).is_some_and(|at| at < claim.at)
    };
    let known = earlier.iter().filter(|other| other.token < sent.token);
    let known = known.filter(|other| here(other) || records.names(&claim.record, other));
    let newest = known.max_by_key(|other| other.token);
    if let Some(Attempted { by, token, .. }) = newest.filter(|newest| newest.body != sent.body) {
        let one = what(sent, found);
        let text = format!("{one} was sent with another body than {token} by {by}, which it knew of");
        found.push(Invariant::AsksTheSame, sent.at, text);
    }
}

/// 5 and 6: a second effect is one that a rule of the key's route allows, or that says in its record that it ran at risk. It is 5 that breaks
/// where the claim was to be lodged.
fn second_effect_is_accounted_for(
    effect: &Attempted,
    others: &[Attempted],
    reruns: &BTreeSet<Arc<str>>,
    views: &Views,
    records: &Records,
    found: &mut Found,
) {
    // No risk was taken of an effect that the claim itself names: nobody was told that it had not
    // happened.
    let names = |claim: &Claim, other: &Attempted| {
        let over = &claim.record.over;
        other.at <= claim.at
            && over.iter().any(|(origin, token)| origin.region == other.by && *token == other.token)
    };
    let claim = records.claim(effect);
    let named = claim.is_some_and(|claim| others.iter().any(|other| names(claim, other)));
    let claim = claim.map(|claim| &claim.record);
    let at_risk = claim.is_some_and(|claim| !claim.risk.is_empty() && !named);
    if at_risk || claim.is_some_and(|claim| reruns.contains(&claim.route)) {
        return;
    }
    let view = views.of_epoch(effect.token.epoch);
    let escrowed = |route: &Arc<str>| view.is_some_and(|view| view.escrow().contains_key(route));
    let invariant = match claim.is_some_and(|claim| escrowed(&claim.route)) {
        true => Invariant::OneEffectUnderEscrow,
        false => Invariant::SecondEffectAtRisk,
    };
    found.push(invariant, effect.at, format!("{} took effect again", what(effect, found)));
}

/// 5: under escrow no risk is taken of an attempt whose claim is lodged where it can be asked for: with a region that was not lost since, unless
/// an operator accepted the risk without that.
fn lodged_claims_are_asked_for(
    effect: &Attempted,
    earlier: &[Attempted],
    reruns: &BTreeSet<Arc<str>>,
    views: &Views,
    records: &Records,
    found: &mut Found,
) {
    let Some(claim) = records.claim(effect) else { return };
    let record = &claim.record;
    if record.risk.is_empty() || reruns.contains(&record.route) {
        return;
    }
    let unknown = |other: &&Attempted| {
        let earlier = other.at < effect.at && other.token < effect.token;
        earlier && other.by != effect.by && !records.names(record, other)
    };
    for other in earlier.iter().filter(unknown) {
        let since = views.gates_since(claim.store, other.token.epoch, claim.at);
        let waived = since.iter().any(|gate| gate.state.waived.iter().any(|(lost, _)| *lost == other.by));
        let present = |holder: &Origin, view: &View| {
            let lost = matches!(view.standing(&holder.region), Some(Standing::Lost { .. }) | None);
            !lost && view.origin(&holder.region).as_ref() == Some(holder)
        };
        let asked = |holder: &&Origin| since.iter().all(|gate| present(holder, &gate.state.view));
        if let Some(holder) = records.holders(other, claim.at).find(asked).filter(|_| !waived) {
            let text = format!(
                "{} took effect again, at risk of {}, whose claim {} was lodged at {holder} all the time",
                what(effect, found),
                other.by,
                other.token
            );
            found.push(Invariant::OneEffectUnderEscrow, effect.at, text);
        }
    }
}
