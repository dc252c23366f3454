//! The invariants about records: the arrows, tokens and the boot that a claim passes under (8, 9, 18).
//!
//! Neighbours: [`super::sends`] asks what a send stands on. What was deleted may begin anew. It must not judge what was sent.

use std::collections::BTreeMap;
use std::time::Duration;

use onceway::protocol::key::KeyId;
use onceway::protocol::record::Token;
use onceway::protocol::region::{Origin, RegionName};

use super::news::{Sent, StoreNews};
use super::{Found, Invariant};
use crate::table::{Record, Standing, Write};

/// A claim, and where it was written.
pub(super) struct Claim {
    pub(super) at: Duration,
    pub(super) store: u64,
    pub(super) origin: Origin,
    pub(super) record: Record,
}

/// What is known of records.
#[derive(Default)]
pub(super) struct Records {
    /// The own record of each key in each store, as it was written last.
    last: BTreeMap<(u64, KeyId), Record>,
    /// All claims of an attempt, in the order of their commits.
    claims: BTreeMap<(RegionName, KeyId, Token), Vec<Claim>>,
    /// When an attempt was first released.
    released: BTreeMap<(RegionName, KeyId, Token), Duration>,
    /// When a claim was first lodged anywhere.
    lodged: BTreeMap<(Origin, KeyId, Token), Duration>,
}

impl Records {
    /// Whether what a record names, or what the claims of that name in their turn, takes in the other attempt.
    pub(super) fn names(&self, record: &Record, other: &Sent) -> bool {
        record.over.iter().any(|(origin, token)| {
            let further = || {
                let named = self.claims.get(&(origin.region.clone(), other.id.clone(), *token));
                named.into_iter().flatten().any(|claim| self.names(&claim.record, other))
            };
            let names = origin.region == other.by && *token >= other.token;
            names || *token < record.token && further()
        })
    }

    /// What a store wrote.
    pub(super) fn wrote(&mut self, store: StoreNews, found: &mut Found) {
        let StoreNews { number, origin, gates: _, kept: _, lodged, writes } = store;
        for lodgment in lodged {
            let key = (lodgment.origin, lodgment.id, lodgment.token);
            self.lodged.entry(key).or_insert(lodgment.at);
        }
        for Write { at, id, record, approved } in writes {
            let Some(record) = record else {
                self.last.remove(&(number, id));
                continue;
            };
            let attempt = (origin.region.clone(), id.clone(), record.token);
            match record.standing {
                Standing::Claimed => {
                    boot_is_approved(&origin, &id, &record, approved, at, found);
                    let claim = Claim { at, store: number, origin: origin.clone(), record: record.clone() };
                    self.claims.entry(attempt).or_default().push(claim);
                }
                Standing::Released => {
                    self.released.entry(attempt).or_insert(at);
                }
                Standing::InDoubt | Standing::Settled | Standing::Tombstone => {}
            }
            if let Some(was) = self.last.get(&(number, id.clone())) {
                arrows_are_followed(&origin, &id, was, &record, at, found);
                tokens_grow(&origin, &id, was, &record, at, found);
            }
            self.last.insert((number, id), record);
        }
    }

    /// The claim that a send stands on.
    pub(super) fn claim(&self, sent: &Sent) -> Option<&Claim> {
        let claims = self.claims.get(&(sent.by.clone(), sent.id.clone(), sent.token))?;
        claims.iter().find(|claim| claim.at <= sent.at)
    }

    /// When the attempt of a claim was first claimed in the same store, whenever it was sent.
    pub(super) fn claimed(&self, sent: &Sent, store: u64) -> Option<Duration> {
        let claims = self.claims.get(&(sent.by.clone(), sent.id.clone(), sent.token))?;
        claims.iter().find(|claim| claim.store == store).map(|claim| claim.at)
    }

    pub(super) fn is_lodged(&self, sent: &Sent, origin: &Origin) -> bool {
        let lodged = self.lodged.get(&(origin.clone(), sent.id.clone(), sent.token));
        lodged.is_some_and(|at| *at <= sent.at)
    }

    pub(super) fn is_released(&self, sent: &Sent, by: Duration) -> bool {
        let released = self.released.get(&(sent.by.clone(), sent.id.clone(), sent.token));
        released.is_some_and(|at| *at <= by)
    }
}

/// 8: a record moves along the arrows only.
fn arrows_are_followed(
    origin: &Origin,
    id: &KeyId,
    was: &Record,
    is: &Record,
    at: Duration,
    found: &mut Found,
) {
    use Standing::{Claimed, InDoubt, Released, Settled, Tombstone};
    let grows = is.token > was.token;
    let stays = is.token == was.token;
    let follows = match (was.standing, is.standing) {
        // A new attempt; a claim whose hold is over reads as a doubt. Its token is judged for itself.
        (Claimed | InDoubt | Released, Claimed) => true,
        // Escrow of a later attempt turns into a doubt or an answer.
        (Claimed, InDoubt | Settled | Released) | (InDoubt, Settled | Released | InDoubt) => stays || grows,
        (Released, InDoubt | Settled) => grows,
        (Released, Released) => stays || grows,
        (Claimed | InDoubt | Released, Tombstone) => stays,
        (Settled, Settled | Tombstone) | (Tombstone, Tombstone) => stays,
        (Settled | Tombstone, Claimed | InDoubt | Released) | (Tombstone, Settled) => false,
    };
    if !follows {
        let (from, to) = (was.standing, is.standing);
        let text = format!("{origin} moved {id:?} from {from:?} {} to {to:?} {}", was.token, is.token);
        found.push(Invariant::Arrows, at, text);
    }
}

/// 9: each claim of a key has a greater token than the one before.
fn tokens_grow(origin: &Origin, id: &KeyId, was: &Record, is: &Record, at: Duration, found: &mut Found) {
    if is.standing == Standing::Claimed && is.token <= was.token {
        let text = format!("{origin} claimed {id:?} under {} after {}", is.token, was.token);
        found.push(Invariant::TokensGrow, at, text);
    }
}

/// 18: no claim passes while the running server is not the approved one.
fn boot_is_approved(
    origin: &Origin,
    id: &KeyId,
    record: &Record,
    approved: bool,
    at: Duration,
    found: &mut Found,
) {
    if !approved {
        let text = format!("{origin} claimed {id:?} under {} while its boot was not approved", record.token);
        found.push(Invariant::BootApproved, at, text);
    }
}
