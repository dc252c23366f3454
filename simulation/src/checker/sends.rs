//! The invariants about sends, which upstreams see: the sender and the effects.
//!
//! A send is judged by the claim and the gate that were durable before it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use onceway::protocol::key::KeyId;
use onceway::protocol::region::Origin;
use onceway::protocol::view::{Standing, View};

use super::invariant::{Found, Invariant};
use super::records::{Claim, Records};
use super::views::Views;
use crate::table::Gated;
use crate::upstream::Attempted;
use crate::words::key;

/// The facts known from stores when a send or an effect is judged.
#[derive(Clone, Copy)]
pub(super) struct Known<'a> {
    pub(super) views: &'a Views,
    pub(super) records: &'a Records,
}

#[derive(Default)]
pub(super) struct Sends {
    /// The routes on which doubts are run again, so that a second effect breaks nothing.
    reruns: BTreeSet<Arc<str>>,
    /// The sends of each key that stood on a claim, in the order in which they arrived.
    before: BTreeMap<KeyId, Vec<Attempted>>,
    /// The effects on each key, in the order in which they were begun.
    ran: BTreeMap<KeyId, Vec<Attempted>>,
    /// The keys that took effect more than once in one life.
    pub(super) doubled: BTreeSet<KeyId>,
    /// The number of effects on keys that had taken effect in an earlier life only.
    pub(super) anew: u64,
}

impl Sends {
    pub(super) fn new(reruns: BTreeSet<Arc<str>>) -> Self {
        Self { reruns, ..Self::default() }
    }

    pub(super) fn sent(&mut self, sent: Attempted, known: Known, found: &mut Found) {
        let Some(claim) = known.records.claim(&sent) else {
            return breaks(Invariant::ClaimedBeforeSent, &sent, "was sent without a claim", found);
        };
        sent_is_lodged(&sent, claim, known, found);
        if let Some(since) = known.views.ended(&sent.by, sent.token.epoch).filter(|since| *since < sent.at) {
            let what = format!("was sent though the region was lost at {}", found.moment(since));
            breaks(Invariant::OneSender, &sent, &what, found);
        }
        sent_while_owned(&sent, claim, known, found);
        let earlier = self.before.entry(sent.id.clone()).or_default();
        for Attempted { at, by, token, .. } in earlier.iter().filter(|other| other.token >= sent.token) {
            let what = format!("was sent after {token} by {by} at {}", found.moment(*at));
            breaks(Invariant::OneSender, &sent, &what, found);
        }
        let of_this_life = remembered(earlier, claim, known);
        of_this_life.iter().for_each(|other| other_was_known(&sent, claim, other, known.records, found));
        asks_the_same(&sent, claim, &of_this_life, known.records, found);
        earlier.push(sent);
    }

    pub(super) fn happened(&mut self, effect: &Attempted, known: Known, found: &mut Found) {
        let ran = self.ran.entry(effect.id.clone()).or_default();
        let others = ran.clone();
        ran.push(effect.clone());
        if others.is_empty() {
            return;
        }
        let claim = known.records.claim(effect);
        let others = match claim {
            Some(claim) => remembered(&others, claim, known),
            None => others,
        };
        if others.is_empty() {
            self.anew += 1;
            return;
        }
        self.doubled.insert(effect.id.clone());
        self.second_effect(effect, &others, known, found);
        if let Some(claim) = claim.filter(|claim| !self.reruns.contains(&claim.record.route)) {
            let earlier = self.before.get(&effect.id).map(Vec::as_slice).unwrap_or_default();
            lodged_claims_are_asked_for(effect, claim, &remembered(earlier, claim, known), known, found);
        }
    }

    /// A second effect needs a rule of the key's route that allows it, or a record that says it ran
    /// at risk. If the claim had to be lodged, it is the one about escrow that breaks.
    fn second_effect(&self, effect: &Attempted, others: &[Attempted], known: Known, found: &mut Found) {
        // What the claim itself names is no risk: no client learned that it had not happened.
        let names = |claim: &Claim, other: &Attempted| {
            let over = &claim.record.over;
            other.at <= claim.at
                && over.iter().any(|(origin, token)| origin.region == other.by && *token == other.token)
        };
        let claim = known.records.claim(effect);
        let named = claim.is_some_and(|claim| others.iter().any(|other| names(claim, other)));
        let claim = claim.map(|claim| &claim.record);
        let at_risk = claim.is_some_and(|claim| !claim.risk.is_empty() && !named);
        if at_risk || claim.is_some_and(|claim| self.reruns.contains(&claim.route)) {
            return;
        }
        let view = known.views.of_epoch(effect.token.epoch);
        let escrowed = |route: &Arc<str>| view.is_some_and(|view| view.escrow().contains_key(route));
        let invariant = match claim.is_some_and(|claim| escrowed(&claim.route)) {
            true => Invariant::OneEffectUnderEscrow,
            false => Invariant::SecondEffectAtRisk,
        };
        breaks(invariant, effect, "took effect again", found);
    }
}

/// Those of these attempts whose life was not over when a claim was made.
fn remembered(others: &[Attempted], claim: &Claim, known: Known) -> Vec<Attempted> {
    others.iter().filter(|other| !known.records.is_forgotten(other, claim, known.views)).cloned().collect()
}

/// Reports what a send, or its effect, broke.
fn breaks(invariant: Invariant, sent: &Attempted, what: &str, found: &mut Found) {
    let Attempted { at, by, id, token, body: _ } = sent;
    found.push(invariant, *at, format!("{} {token} by {by} at {} {what}", key(id), found.moment(*at)));
}

/// On a route under escrow, the claim is also lodged with the next region.
fn sent_is_lodged(sent: &Attempted, claim: &Claim, known: Known, found: &mut Found) {
    let Some(view) = known.views.of_epoch(sent.token.epoch) else { return };
    let escrowed = view.escrow().contains_key(&claim.record.route);
    let owed = escrowed && view.owner(&sent.id) == Some(&sent.by) && view.target(&sent.id).is_some();
    if owed && !known.records.is_lodged(sent, &claim.origin) {
        breaks(Invariant::ClaimedBeforeSent, sent, "was sent without its escrow", found);
    }
}

/// The region owned the key all the time since its claim. A region that slept while another one
/// owned the key must not send it (docs/protocol.md#rule-9).
fn sent_while_owned(sent: &Attempted, claim: &Claim, known: Known, found: &mut Found) {
    let Some(at) = known.records.claimed(sent, claim.store) else { return };
    let gates = known.views.stretch(claim.store, |gate| gate.at <= at, |gate| gate.at < sent.at);
    let lost = gates.iter().find(|gate| gate.state.view.owner(&sent.id) != Some(&sent.by));
    if let Some(gate) = lost {
        let since = found.moment(gate.at);
        let what = format!("was sent though the key was another's at {since}, after its claim");
        breaks(Invariant::OneSender, sent, &what, found);
    }
}

/// A send after another region's attempt names that attempt, was claimed at risk, or came after
/// its release. The named attempt may have named the other one in its turn, and was claimed only
/// after that one's wait.
fn other_was_known(sent: &Attempted, claim: &Claim, other: &Attempted, records: &Records, found: &mut Found) {
    if other.by == sent.by || other.token >= sent.token {
        return;
    }
    let record = &claim.record;
    let known =
        !record.risk.is_empty() || records.names(record, other) || records.is_released(other, sent.at);
    if !known {
        let what = format!("knew nothing of {} by {} and runs at no risk", other.token, other.by);
        breaks(Invariant::KnewOfOthers, sent, &what, found);
    }
}

/// A send asks the same as the newest attempt that it knew: one that its claim names, or one
/// claimed in the same store. If two attempts that knew nothing of one another asked for different
/// things, the newer one counts (docs/protocol.md#rule-3).
fn asks_the_same(sent: &Attempted, claim: &Claim, all: &[Attempted], records: &Records, found: &mut Found) {
    let here = |other: &Attempted| {
        other.by == sent.by && records.claimed(other, claim.store).is_some_and(|at| at < claim.at)
    };
    let known = all.iter().filter(|other| other.token < sent.token);
    let known = known.filter(|other| here(other) || records.names(&claim.record, other));
    let newest = known.max_by_key(|other| other.token);
    if let Some(Attempted { by, token, .. }) = newest.filter(|newest| newest.body != sent.body) {
        let what = format!("was sent with another body than {token} by {by}, which it knew of");
        breaks(Invariant::AsksTheSame, sent, &what, found);
    }
}

/// Under escrow no attempt may be risked whose claim is lodged where it can be asked for. That
/// is a region that was not lost since. An operator may accept the risk without that.
fn lodged_claims_are_asked_for(
    effect: &Attempted,
    claim: &Claim,
    earlier: &[Attempted],
    known: Known,
    found: &mut Found,
) {
    let (Known { views, records }, record) = (known, &claim.record);
    if record.risk.is_empty() {
        return;
    }
    let unknown = |other: &&Attempted| {
        let earlier = other.at < effect.at && other.token < effect.token;
        earlier && other.by != effect.by && !records.names(record, other)
    };
    for other in earlier.iter().filter(unknown) {
        let before = |gate: &Gated| gate.state.view.epoch() <= other.token.epoch;
        let since = views.stretch(claim.store, before, |gate| gate.at <= claim.at);
        let waived = since.iter().any(|gate| gate.state.waived.iter().any(|(lost, _)| *lost == other.by));
        let present = |holder: &Origin, view: &View| {
            let lost = matches!(view.standing(&holder.region), Some(Standing::Lost { .. }) | None);
            !lost && view.origin(&holder.region).as_ref() == Some(holder)
        };
        let asked = |holder: &&Origin| since.iter().all(|gate| present(holder, &gate.state.view));
        if let Some(holder) = records.holders(other, claim.at).find(asked).filter(|_| !waived) {
            let Attempted { by, token, .. } = other;
            let what = format!(
                "took effect again, at risk of {by}, whose claim {token} was lodged at {holder} all the time"
            );
            breaks(Invariant::OneEffectUnderEscrow, effect, &what, found);
        }
    }
}
