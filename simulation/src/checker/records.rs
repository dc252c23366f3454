//! The invariants about records: the arrows, tokens, and the gate and the boot that a claim passes under (8, 9, 10, 18, 19).
//!
//! Neighbours: [`super::sends`] asks what a send stands on. What was deleted may begin anew, under
//! greater tokens. It must not judge what was sent.

use std::collections::BTreeMap;
use std::time::Duration;

use onceway::protocol::authority::GateState;
use onceway::protocol::key::KeyId;
use onceway::protocol::plant::{Plant, removed};
use onceway::protocol::record::Token;
use onceway::protocol::region::{Origin, RegionName};
use onceway::protocol::view::View;

use super::news::StoreNews;
use super::views::Views;
use super::{Found, Invariant};
use crate::table::{Gated, Lodgment, Record, Standing, Write};
use crate::upstream::Attempted;
use crate::words::key;

/// The allowance for clocks over a short life.
const LIFE_MARGIN: Duration = Duration::from_secs(2);

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
    /// The newest record of each key that a store made itself, and when: until then its life is
    /// counted.
    born: BTreeMap<(u64, KeyId), (Duration, Record)>,
    /// The greatest token that a store ever claimed a key under, forgotten or not.
    greatest: BTreeMap<(u64, KeyId), Token>,
    /// All claims of an attempt, in the order of their commits.
    claims: BTreeMap<(RegionName, KeyId, Token), Vec<Claim>>,
    /// Records written whole, without a claim before them: stand-ins for attempts of another
    /// region.
    stood_in: BTreeMap<(RegionName, KeyId, Token), Vec<Record>>,
    /// When an attempt was first released.
    released: BTreeMap<(RegionName, KeyId, Token), Duration>,
    /// When a claim was first lodged anywhere.
    lodged: BTreeMap<(Origin, KeyId, Token), Duration>,
    /// Where claims of a region were lodged, and when first.
    holders: BTreeMap<(RegionName, KeyId, Token), BTreeMap<Origin, Duration>>,
}

impl Records {
    /// Whether what a record names, or what the claims of that name in their turn, takes in the other attempt.
    pub(super) fn names(&self, record: &Record, other: &Attempted) -> bool {
        record.over.iter().any(|(origin, token)| {
            let further = || {
                let attempt = (origin.region.clone(), other.id.clone(), *token);
                let claims = self.claims.get(&attempt).into_iter().flatten().map(|claim| &claim.record);
                let whole = self.stood_in.get(&attempt).into_iter().flatten();
                claims.chain(whole).any(|record| self.names(record, other))
            };
            let names = origin.region == other.by && *token >= other.token;
            names || *token < record.token && further()
        })
    }

    /// What a store wrote.
    pub(super) fn wrote(&mut self, store: StoreNews, views: &Views, found: &mut Found) {
        let StoreNews { number, origin, gates: _, kept: _, lodged, writes } = store;
        for lodgment in lodged {
            lodged_under_its_view(&origin, number, &lodgment, views, found);
            let of_region = (lodgment.origin.region.clone(), lodgment.id.clone(), lodgment.token);
            let holders = self.holders.entry(of_region).or_default();
            holders.entry(origin.clone()).or_insert(lodgment.at);
            let key = (lodgment.origin, lodgment.id, lodgment.token);
            let at = lodgment.at;
            self.lodged.entry(key).and_modify(|known| *known = at.min(*known)).or_insert(at);
        }
        for Write { at, id, record, approved, beside_open } in writes {
            let Some(record) = record else {
                let last = self.last.remove(&(number, id.clone()));
                if let Some((born, record)) = self.born.remove(&(number, id.clone())) {
                    kept_for_its_life(&origin, &id, (born, record.lives.1), "forgot", at, found);
                }
                final_stays(&origin, &id, last.as_ref(), beside_open, at, found);
                continue;
            };
            let attempt = (origin.region.clone(), id.clone(), record.token);
            let made = is_made_here(&record);
            let place = (number, id.clone());
            if self.last.get(&place).is_none_or(|was| was.token != record.token) {
                self.born.remove(&place);
                if made {
                    self.born.insert(place.clone(), (at, record.clone()));
                }
            }
            if made && record.standing != Standing::Claimed {
                self.stood_in.entry(attempt.clone()).or_default().push(record.clone());
            }
            match record.standing {
                Standing::Claimed => {
                    let greatest = self.greatest.get(&place).copied();
                    if let Some(greatest) = greatest.filter(|_| !self.last.contains_key(&place)) {
                        never_comes_again(&origin, &id, &record, greatest, at, found);
                    }
                    self.greatest.insert(
                        place.clone(),
                        greatest.map_or(record.token, |known| known.max(record.token)),
                    );
                    whole_at_once(&origin, &id, &record, at, found);
                    boot_is_approved(&origin, &id, &record, approved, at, found);
                    let claim = Claim { at, store: number, origin: origin.clone(), record: record.clone() };
                    let claims = self.claims.entry(attempt).or_default();
                    if claims.iter().all(|known| known.store != number) {
                        claimed_while_open(&id, &claim, views, found);
                    }
                    claims.push(claim);
                }
                Standing::Released => {
                    self.released.entry(attempt).or_insert(at);
                }
                Standing::Tombstone => {
                    if let Some((born, record)) = self.born.get(&place) {
                        kept_for_its_life(&origin, &id, (*born, record.lives.0), "expired", at, found);
                    }
                }
                Standing::InDoubt | Standing::Settled => {}
            }
            if let Some(was) = self.last.get(&(number, id.clone())) {
                arrows_are_followed(&origin, &id, was, &record, at, found);
                tokens_grow(&origin, &id, was, &record, at, found);
            }
            self.last.insert((number, id), record);
        }
    }

    /// The claim that a send stands on.
    pub(super) fn claim(&self, sent: &Attempted) -> Option<&Claim> {
        let claims = self.claims.get(&(sent.by.clone(), sent.id.clone(), sent.token))?;
        claims.iter().find(|claim| claim.at <= sent.at)
    }

    /// When the attempt of a claim was first claimed in the same store, whenever it was sent.
    pub(super) fn claimed(&self, sent: &Attempted, store: u64) -> Option<Duration> {
        let claims = self.claims.get(&(sent.by.clone(), sent.id.clone(), sent.token))?;
        claims.iter().find(|claim| claim.store == store).map(|claim| claim.at)
    }

    pub(super) fn is_lodged(&self, sent: &Attempted, origin: &Origin) -> bool {
        let lodged = self.lodged.get(&(origin.clone(), sent.id.clone(), sent.token));
        lodged.is_some_and(|at| *at <= sent.at)
    }

    /// Where the claim of a send was lodged before this moment.
    pub(super) fn holders(&self, sent: &Attempted, before: Duration) -> impl Iterator<Item = &Origin> {
        let all = self.holders.get(&(sent.by.clone(), sent.id.clone(), sent.token));
        all.into_iter().flatten().filter(move |(_, at)| **at < before).map(|(holder, _)| holder)
    }

    pub(super) fn is_released(&self, sent: &Attempted, by: Duration) -> bool {
        let released = self.released.get(&(sent.by.clone(), sent.id.clone(), sent.token));
        released.is_some_and(|at| *at <= by)
    }
}

/// 10: the gate that a claim is committed under lets its key run: nothing of it was given up, and it was not gained and still to be caught up
/// with, unless the claim stands on a proof, which routes under escrow have, and which is no risk.
fn claimed_while_open(id: &KeyId, claim: &Claim, views: &Views, found: &mut Found) {
    let Claim { at, store, origin, record } = claim;
    let owns = |view: &View| view.owner(id) == Some(&origin.region);
    let lets = |state: &GateState| {
        let given_up = state.pending.as_ref().is_some_and(|pending| !owns(&pending.target));
        let caught_up = state.since.iter().all(|view| owns(view));
        let proven = record.risk.is_empty() && state.view.escrow().contains_key(&record.route);
        owns(&state.view) && !given_up && (caught_up || proven)
    };
    if !views.gates_at(*store, *at).iter().any(|gate| lets(&gate.state)) {
        let (id, token) = (key(id), record.token);
        let text = format!("{origin} claimed {id} under {token} while its gate was closed for it");
        found.push(Invariant::OpenWhenCovered, *at, text);
    }
}

/// 4.1: a claim is lodged while the store goes by the view that it was made under, and knows its origin: else its absence proves nothing.
fn lodged_under_its_view(
    at_store: &Origin,
    number: u64,
    lodgment: &Lodgment,
    views: &Views,
    found: &mut Found,
) {
    let Lodgment { at, id, origin, token } = lodgment;
    let knows = |gate: &&Gated| {
        let view = &gate.state.view;
        view.epoch() == token.epoch && view.origin(&origin.region).as_ref() == Some(origin)
    };
    if !views.gates_at(number, *at).iter().any(|gate| knows(&gate)) {
        let text = format!("{origin} lodged {} {token} at {at_store}, which went by another view", key(id));
        found.push(Invariant::LodgedUnderItsView, *at, text);
    }
}

/// 19: what is final stays so: a tombstone goes after every row that it hides.
fn final_stays(
    origin: &Origin,
    id: &KeyId,
    last: Option<&Record>,
    beside_open: bool,
    at: Duration,
    found: &mut Found,
) {
    if beside_open && last.is_some_and(|last| last.standing == Standing::Tombstone) {
        let text = format!("{origin} forgot {} while another region's open row of it stood there", key(id));
        found.push(Invariant::FinalStays, at, text);
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
        let (id, from, to) = (key(id), was.standing, is.standing);
        let text = format!("{origin} moved {id} from {from:?} {} to {to:?} {}", was.token, is.token);
        found.push(Invariant::Arrows, at, text);
    }
}

/// 9: each claim of a key has a greater token than the one before.
fn tokens_grow(origin: &Origin, id: &KeyId, was: &Record, is: &Record, at: Duration, found: &mut Found) {
    if is.standing == Standing::Claimed && is.token <= was.token {
        let text = format!("{origin} claimed {} under {} after {}", key(id), is.token, was.token);
        found.push(Invariant::TokensGrow, at, text);
    }
}

/// True if a store made this record itself: a claim, or a stand-in that is whole at once.
fn is_made_here(record: &Record) -> bool {
    match record.standing {
        Standing::Claimed => true,
        Standing::Settled | Standing::Released => record.hold.is_zero(),
        Standing::InDoubt | Standing::Tombstone => false,
    }
}

/// 9: nor does a token come again once its key was forgotten.
fn never_comes_again(
    origin: &Origin,
    id: &KeyId,
    record: &Record,
    greatest: Token,
    at: Duration,
    found: &mut Found,
) {
    if record.token <= greatest {
        let text = format!("{origin} claimed {} under {} once more, after {greatest}", key(id), record.token);
        found.push(Invariant::TokensGrow, at, text);
    }
}

/// 22: a claim that nobody sends under would read as an attempt if its writer died before it says
/// what it stands for.
fn whole_at_once(origin: &Origin, id: &KeyId, record: &Record, at: Duration, found: &mut Found) {
    // Without that check rows are as an older version left them.
    if record.hold.is_zero() && !removed(Plant::NamedAnswered) {
        let (id, token) = (key(id), record.token);
        let text = format!(
            "{origin} claimed {id} under {token}, which nobody sends, and says nothing of what it is for"
        );
        found.push(Invariant::WholeAtOnce, at, text);
    }
}

/// 23: a life is over once that much time has passed, whatever a clock says.
fn kept_for_its_life(
    origin: &Origin,
    id: &KeyId,
    (born, life): (Duration, Duration),
    what: &str,
    at: Duration,
    found: &mut Found,
) {
    // Clocks that run fast within what is allowed are no breach.
    let least = life.saturating_sub(life / 100).saturating_sub(LIFE_MARGIN);
    if at < born + least {
        let text = format!(
            "{origin} {what} {} {:?} after it was made, and {life:?} were promised",
            key(id),
            at - born
        );
        found.push(Invariant::KeptForItsLife, at, text);
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
        let (id, token) = (key(id), record.token);
        let text = format!("{origin} claimed {id} under {token} while its boot was not approved");
        found.push(Invariant::BootApproved, at, text);
    }
}
