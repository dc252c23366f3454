//! The invariants of the protocol, judged by the truth that no gateway sees (protocol reference, section 6; the numbers are its own).
//!
//! Neighbours: [`crate::cluster`], [`crate::witness`] and [`crate::upstream`] tell the truth; scenarios run it after each of their steps.
//! Not visible from outside a gateway, and so not here: leases (13) and what is open for which reason (10, in part). It must not change anything.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use onceway::protocol::authority::GateState;
use onceway::protocol::digest::Digest32;
use onceway::protocol::key::KeyId;
use onceway::protocol::record::{State, Token};
use onceway::protocol::region::{Origin, RegionName};
use onceway::protocol::register::{Ballot, majority};
use onceway::protocol::view::{AcceptorId, Standing as InView, View};

use crate::table::{Held, Record, Standing, Truth, Write};
use crate::upstream::Happening;
use crate::world::World;

/// One send of an attempt, as an upstream saw it.
struct Sent {
    at: Duration,
    by: RegionName,
    id: KeyId,
    token: Token,
}

struct Facts {
    stores: Vec<Truth>,
    acceptors: Vec<Vec<Held>>,
    sent: Vec<Sent>,
    ledger: BTreeMap<KeyId, Vec<Happening>>,
}

/// Every breach of an invariant so far; empty if there is none. `reruns` says of a route whether a doubt of it is run again.
pub fn breaches(world: &World, reruns: &dyn Fn(&str) -> bool) -> Vec<String> {
    let stores = world.cluster.truths();
    let mut acceptors: Vec<Vec<Held>> = stores.iter().map(|store| store.history.acceptors.clone()).collect();
    acceptors.extend(world.witnesses().iter().map(|witness| witness.history()));
    let sent = world.upstreams.all_arrivals().into_iter().filter_map(|(by, arrival)| {
        let (id, token, _) = arrival.attempt?;
        Some(Sent { at: arrival.at, by, id, token })
    });
    let facts = Facts { acceptors, sent: sent.collect(), ledger: world.upstreams.ledger(), stores };
    let mut found = Vec::new();
    facts.acceptors_keep_promises(&mut found);
    let chosen = facts.chosen(&mut found);
    facts.adopted_views_are_chosen(&chosen, &mut found);
    marks_stay(&chosen, &mut found);
    facts.gates_open_when_covered(&mut found);
    for store in &facts.stores {
        records_follow_the_arrows(store, &mut found);
    }
    facts.sends_are_allowed(&chosen, &mut found);
    facts.effects_are_accounted_for(reruns, &mut found);
    found
}

/// Keys of which two regions have an answer of their own and some store shows both, while no journal says so (7). For the end of a
/// scenario: it takes a while until they are compared.
pub fn unjournalled_doubles(world: &World) -> Vec<KeyId> {
    let stores = world.cluster.truths();
    let noted: BTreeSet<&KeyId> = stores
        .iter()
        .flat_map(|store| &store.journal)
        .filter(|(_, entry)| entry.kind == "double")
        .filter_map(|(id, _)| id.as_ref())
        .collect();
    let ran_twice = world.upstreams.ledger().into_iter().filter(|(_, effects)| effects.len() > 1);
    let seen = |id: &KeyId| {
        stores
            .iter()
            .filter_map(|store| store.rows.get(id))
            .any(|rows| rows.iter().filter(|row| matches!(row.state, State::Settled { .. })).count() > 1)
    };
    ran_twice.map(|(id, _)| id).filter(|id| seen(id) && !noted.contains(id)).collect()
}

impl Facts {
    /// 12: what was promised never falls, and nothing is accepted below it.
    fn acceptors_keep_promises(&self, found: &mut Vec<String>) {
        for pair in self.acceptors.iter().flat_map(|history| history.windows(2)) {
            let [before, after] = pair else { continue };
            if before.id == after.id && after.promised < before.promised {
                found.push(format!(
                    "12: {:?} promised {:?} after {:?}",
                    after.id, after.promised, before.promised
                ));
            }
            let accepts = after.accepted != before.accepted;
            let ballot = after.accepted.as_ref().map(|accepted| accepted.ballot.clone());
            if before.id == after.id && accepts && ballot < before.promised {
                found.push(format!("12: {:?} accepted {ballot:?} below {:?}", after.id, before.promised));
            }
        }
    }

    /// 1: at most one chosen view per epoch, and no epoch left out. Returns them.
    fn chosen(&self, found: &mut Vec<String>) -> BTreeMap<u64, Arc<View>> {
        let mut by: BTreeMap<(Ballot, Digest32), (Arc<View>, BTreeSet<AcceptorId>)> = BTreeMap::new();
        for held in self.acceptors.iter().flatten() {
            let Some(accepted) = &held.accepted else { continue };
            let key = (accepted.ballot.clone(), accepted.view.digest());
            let (_, ids) = by.entry(key).or_insert_with(|| (accepted.view.clone(), BTreeSet::new()));
            ids.insert(held.id);
        }
        let mut chosen: BTreeMap<u64, Arc<View>> = BTreeMap::new();
        for (view, ids) in by.into_values() {
            let votes = view.voters().values().filter(|id| ids.contains(id)).count();
            if votes < majority(view.voters().len()) {
                continue;
            }
            let known = chosen.entry(view.epoch()).or_insert_with(|| view.clone());
            if *known != view {
                found.push(format!("1: two views were chosen for epoch {}", view.epoch()));
            }
        }
        let last = chosen.keys().next_back().copied().unwrap_or(0);
        let first = chosen.keys().next().copied().unwrap_or(1);
        found.extend(
            (first..=last)
                .filter(|epoch| !chosen.contains_key(epoch))
                .map(|epoch| format!("1: epoch {last} was chosen, epoch {epoch} never was")),
        );
        chosen
    }

    /// 2: whatever a region adopts or keeps was chosen, and its epoch never falls.
    fn adopted_views_are_chosen(&self, chosen: &BTreeMap<u64, Arc<View>>, found: &mut Vec<String>) {
        for store in &self.stores {
            let adopted = store.history.gates.iter().map(|gate| &gate.state.view);
            for view in adopted.clone().chain(&store.history.views) {
                if chosen.get(&view.epoch()) != Some(view) {
                    found.push(format!(
                        "2: {} holds a view of epoch {} that was not chosen",
                        store.origin,
                        view.epoch()
                    ));
                }
            }
            let epochs: Vec<u64> = adopted.map(|view| view.epoch()).collect();
            if !epochs.is_sorted() {
                found.push(format!("2: the epoch of {} fell: {epochs:?}", store.origin));
            }
        }
    }

    /// 10: a gate that opens has applied every mark, those apart whose loss an operator accepted.
    fn gates_open_when_covered(&self, found: &mut Vec<String>) {
        for store in &self.stores {
            for pair in store.history.gates.windows(2) {
                let [before, after] = pair else { continue };
                let view = &after.state.view;
                if before.state.is_open() || !after.state.is_open() || !view.serves(&store.origin.region) {
                    continue;
                }
                let marks =
                    view.members().keys().filter_map(|name| Some((view.origin(name)?, view.members()[name])));
                for (origin, member) in marks.filter(|(origin, _)| *origin != store.origin) {
                    let applied = after.applied.get(&origin).copied().unwrap_or(0);
                    let waived = after.state.waived.iter().any(|(region, _)| *region == origin.region);
                    if applied < member.mark && !waived {
                        let mark = member.mark;
                        found.push(format!(
                            "10: {} opened at {applied} of {origin}, whose mark is {mark}",
                            store.origin
                        ));
                    }
                }
            }
        }
    }

    /// 3, 4 and the two rules of fencing tokens: each send has its claim, and its escrow, durable before it; tokens of a key are sent in
    /// growing order; and whoever is sent after another region's attempt knew of it, or says that it ran at risk.
    fn sends_are_allowed(&self, chosen: &BTreeMap<u64, Arc<View>>, found: &mut Vec<String>) {
        let mut before: BTreeMap<&KeyId, Vec<&Sent>> = BTreeMap::new();
        for sent in &self.sent {
            let Sent { at, by, id, token } = sent;
            let what = format!("{id:?} {token} by {by} at {at:?}");
            let Some((origin, claim)) = self.claim(sent) else {
                found.push(format!("4: {what} was sent without a claim"));
                continue;
            };
            if !self.was_open(sent, origin, claim) {
                found.push(format!("10: {what} was claimed while its gate was closed for it"));
            }
            if let Some(view) = chosen.get(&token.epoch)
                && view.escrow().contains(&claim.route)
                && view.owner(id) == Some(by)
                && view.target(id).is_some()
                && !self.is_lodged(sent, origin)
            {
                found.push(format!("4: {what} was sent without its escrow"));
            }
            if let Some(since) = self.ended(by, token.epoch).filter(|since| since < at) {
                found.push(format!("3: {what} was sent though the region was lost at {since:?}"));
            }
            let earlier = before.entry(id).or_default();
            for other in earlier.iter() {
                if other.token >= *token {
                    found.push(format!(
                        "3: {what} was sent after {} by {} at {:?}",
                        other.token, other.by, other.at
                    ));
                } else if other.by != *by && !self.knew(claim, other, *at) {
                    found.push(format!(
                        "T2: {what} knew nothing of {} by {} and runs at no risk",
                        other.token, other.by
                    ));
                }
            }
            earlier.push(sent);
        }
    }

    /// Whether the gate that a claim was committed under let its key run: nothing of it was given up, and it was not gained and still to be
    /// caught up with, unless it stands on a proof, which routes under escrow have, and which is no risk.
    fn was_open(&self, sent: &Sent, origin: &Origin, claim: &Record) -> bool {
        let Some(store) = self.stores.iter().find(|store| store.origin == *origin) else { return true };
        let is_claim = |write: &&Write| {
            let record = write.record.as_ref();
            let is = |record: &Record| record.standing == Standing::Claimed && record.token == sent.token;
            write.id == sent.id && record.is_some_and(is)
        };
        let Some(at) = store.writes.iter().find(is_claim).map(|write| write.at) else { return true };
        let owns = |view: &View| view.owner(&sent.id) == Some(&sent.by);
        let lets = |state: &GateState| {
            let given_up = state.pending.as_ref().is_some_and(|pending| !owns(&pending.target));
            let caught_up = state.since.iter().all(|view| owns(view));
            let proven = claim.risk.is_empty() && state.view.escrow().contains(&claim.route);
            !given_up && (caught_up || proven)
        };
        let gates = &store.history.gates;
        // What was committed in one moment may have been committed in any order.
        let before = gates.iter().rfind(|gate| gate.at < at);
        let same = gates.iter().filter(|gate| gate.at == at);
        before.into_iter().chain(same).any(|gate| lets(&gate.state))
    }

    /// When anybody first adopted a view that declared the region lost after this epoch: from then on its lease must be over, whatever the
    /// window hides.
    fn ended(&self, region: &RegionName, epoch: u64) -> Option<Duration> {
        let gates = self.stores.iter().flat_map(|store| &store.history.gates);
        let lost = gates.filter(|gate| {
            let standing = gate.state.view.standing(region);
            matches!(standing, Some(InView::Lost { at, .. }) if at > epoch)
        });
        lost.map(|gate| gate.at).min()
    }

    /// The claim that a send stands on, and whose it is.
    fn claim(&self, sent: &Sent) -> Option<(&Origin, &Record)> {
        let stores = self.stores.iter().filter(|store| store.origin.region == sent.by);
        stores.flat_map(|store| store.writes.iter().map(|write| (&store.origin, write))).find_map(
            |(origin, write)| {
                let record = write.record.as_ref()?;
                let is_claim = record.standing == Standing::Claimed && record.token == sent.token;
                (is_claim && write.id == sent.id && write.at <= sent.at).then_some((origin, record))
            },
        )
    }

    fn is_lodged(&self, sent: &Sent, origin: &Origin) -> bool {
        let lodged = self.stores.iter().flat_map(|store| &store.history.lodged);
        lodged.into_iter().any(|lodgment| {
            lodgment.id == sent.id
                && lodgment.origin == *origin
                && lodgment.token == sent.token
                && lodgment.at <= sent.at
        })
    }

    /// Whether a claim names another region's attempt, was made at risk, or came after that attempt was released.
    fn knew(&self, claim: &Record, other: &Sent, by: Duration) -> bool {
        let names = |(origin, token): &(Origin, Token)| origin.region == other.by && *token >= other.token;
        let released = || {
            let stores = self.stores.iter().filter(|store| store.origin.region == other.by);
            stores.flat_map(|store| &store.writes).any(|write| {
                let record = write.record.as_ref();
                let is = record.is_some_and(|record| {
                    record.standing == Standing::Released && record.token == other.token
                });
                is && write.id == other.id && write.at <= by
            })
        };
        !claim.risk.is_empty() || claim.over.iter().any(names) || released()
    }

    /// 5 and 6: a second effect is one that a rule of the key's route allows, or that says in its record that it ran at risk.
    fn effects_are_accounted_for(&self, reruns: &dyn Fn(&str) -> bool, found: &mut Vec<String>) {
        for (id, effects) in &self.ledger {
            for effect in effects.iter().skip(1) {
                let sent =
                    Sent { at: effect.at, by: effect.region.clone(), id: id.clone(), token: effect.token };
                let allowed = self
                    .claim(&sent)
                    .is_some_and(|(_, claim)| !claim.risk.is_empty() || reruns(&claim.route));
                if !allowed {
                    found.push(format!(
                        "5: {id:?} took effect again at {:?} under {}",
                        effect.at, effect.token
                    ));
                }
            }
        }
    }
}

/// 11: a region's mark never goes back while its store is the same, except when it is lost.
fn marks_stay(chosen: &BTreeMap<u64, Arc<View>>, found: &mut Vec<String>) {
    for (before, after) in chosen.values().zip(chosen.values().skip(1)) {
        for (name, was) in before.members() {
            let Some(is) = after.members().get(name) else { continue };
            let lost = matches!(is.standing, InView::Lost { .. });
            if is.generation == was.generation && is.mark < was.mark && !lost {
                found.push(format!(
                    "11: the mark of {name} fell from {} to {} in epoch {}",
                    was.mark,
                    is.mark,
                    after.epoch()
                ));
            }
        }
    }
}

/// 8 and 9: a record moves along the arrows only, and each claim has a greater token than the one before.
fn records_follow_the_arrows(store: &Truth, found: &mut Vec<String>) {
    let mut known: BTreeMap<&KeyId, &Record> = BTreeMap::new();
    for write in &store.writes {
        let Some(record) = &write.record else {
            known.remove(&write.id);
            continue;
        };
        if let Some(was) = known.insert(&write.id, record)
            && !may_follow(was, record)
        {
            let (from, to) = (was.standing, record.standing);
            found.push(format!(
                "8: {} moved {:?} from {from:?} {} to {to:?} {}",
                store.origin, write.id, was.token, record.token
            ));
        }
    }
}

fn may_follow(was: &Record, is: &Record) -> bool {
    use Standing::{Claimed, InDoubt, Released, Settled, Tombstone};
    let grows = is.token > was.token;
    let stays = is.token == was.token;
    match (was.standing, is.standing) {
        // A new attempt; a claim whose hold is over reads as a doubt. Escrow of a later attempt turns into a doubt or an answer.
        (Claimed | InDoubt | Released, Claimed) => grows,
        (Claimed, InDoubt | Settled | Released) | (InDoubt, Settled | Released | InDoubt) => stays || grows,
        (Released, InDoubt | Settled) => grows,
        (Released, Released) => stays || grows,
        (Claimed | InDoubt | Released, Tombstone) => stays,
        (Settled, Settled | Tombstone) | (Tombstone, Tombstone) => stays,
        (Settled | Tombstone, Claimed | InDoubt | Released) | (Tombstone, Settled) => false,
    }
}
