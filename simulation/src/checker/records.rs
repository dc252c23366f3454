//! The invariants about records: arrows, tokens, and the gate and boot that a claim passes under.
//!
//! A key whose record was deleted may begin again, under greater tokens.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use onceway::protocol::authority::GateState;
use onceway::protocol::key::KeyId;
use onceway::protocol::plant::{Check, is_disabled};
use onceway::protocol::record::{Row, Token};
use onceway::protocol::region::{Origin, RegionName};
use onceway::protocol::view::View;

use super::invariant::{Found, Invariant};
use super::news::StoreNews;
use super::views::{Marks, Views};
use crate::table::{Gated, Lodgment, Record, Standing, Write};
use crate::upstream::Attempted;
use crate::words::key;

const LIFE_MARGIN: Duration = Duration::from_secs(2);

#[derive(Clone)]
pub(super) struct Claim {
    pub(super) at: Duration,
    pub(super) store: u64,
    pub(super) origin: Origin,
    pub(super) record: Record,
}

/// The least of a promised life: clocks that run fast within the allowance break no promise.
fn least(life: Duration) -> Duration {
    life.saturating_sub(life / 100).saturating_sub(LIFE_MARGIN)
}

struct Settled {
    token: Token,
    at: Duration,
    /// The end of its promised life, tombstone included, at the earliest.
    until: Duration,
}

/// A write: whose, of which key, and when.
struct Written<'a> {
    origin: &'a Origin,
    id: &'a KeyId,
    at: Duration,
}

impl Written<'_> {
    /// Reports that its writer broke an invariant by what it did to its key.
    fn breaks(&self, invariant: Invariant, did: &str, rest: &str, found: &mut Found) {
        found.push(invariant, self.at, format!("{} {did} {}{rest}", self.origin, key(self.id)));
    }
}

/// An attempt, by its region, its key and its token.
type Attempt = (RegionName, KeyId, Token);

fn attempt(sent: &Attempted) -> Attempt {
    (sent.by.clone(), sent.id.clone(), sent.token)
}

/// A store has an accepted request that has not ended.
struct Waiting {
    origin: Origin,
    since: Duration,
    until: Option<Duration>,
}

#[derive(Default)]
pub(super) struct Records {
    /// The own record of each key in each store, as last written.
    last: BTreeMap<(u64, KeyId), Record>,
    /// The newest record of each key that a store made itself, and when. Its life counts from then.
    born: BTreeMap<(u64, KeyId), (Duration, Record)>,
    /// The greatest token of a key that a store ever claimed, also after the key was forgotten.
    greatest: BTreeMap<(u64, KeyId), Token>,
    /// All claims of an attempt, in the order of their commits.
    claims: BTreeMap<Attempt, Vec<Claim>>,
    /// Records written whole, without a claim before them: they stand in for another region.
    stood_in: BTreeMap<Attempt, Vec<Record>>,
    /// The stores of other regions that ever had a row of an attempt.
    arrived: BTreeMap<Attempt, BTreeSet<Origin>>,
    /// Settled records of each key, by any store.
    settled: BTreeMap<KeyId, Vec<Settled>>,
    /// The times in which accepted requests waited for their job, in each store.
    waiting: BTreeMap<KeyId, Vec<Waiting>>,
    /// The time at which an attempt was first released.
    released: BTreeMap<Attempt, Duration>,
    /// The time at which a claim was first lodged anywhere.
    lodged: BTreeMap<(Origin, KeyId, Token), Duration>,
    /// The stores where claims of a region were lodged, and since when.
    holders: BTreeMap<Attempt, BTreeMap<Origin, Duration>>,
}

impl Records {
    /// True if a record names the other attempt, directly or through the claims that it names.
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

    pub(super) fn came(&mut self, arrived: Vec<(Origin, Attempt)>) {
        for (at, attempt) in arrived {
            self.arrived.entry(attempt).or_default().insert(at);
        }
    }

    pub(super) fn wrote(&mut self, store: StoreNews, views: &Views, marks: &mut Marks, found: &mut Found) {
        let StoreNews { number, origin, gates: _, kept: _, lodged, writes } = store;
        for lodgment in lodged {
            lodged_under_its_view(&origin, number, &lodgment, views, found);
            let of_region = (lodgment.origin.region.clone(), lodgment.id.clone(), lodgment.token);
            let holders = self.holders.entry(of_region).or_default();
            holders.entry(origin.clone()).or_insert(lodgment.at);
            let known =
                self.lodged.entry((lodgment.origin, lodgment.id, lodgment.token)).or_insert(lodgment.at);
            *known = lodgment.at.min(*known);
        }
        for Write { at, id, record, approved, beside_open } in writes {
            self.waits(&origin, &id, record.as_ref(), at);
            let written = Written { origin: &origin, id: &id, at };
            let Some(record) = record else {
                let last = self.last.remove(&(number, id.clone()));
                if let Some((born, record)) = self.born.remove(&(number, id.clone())) {
                    kept_for_its_life(&written, born, record.lives.1, "forgot", found);
                }
                final_stays(&written, last.as_ref(), beside_open, found);
                continue;
            };
            let attempt = (origin.region.clone(), id.clone(), record.token);
            let place = (number, id.clone());
            let is_first = self.last.get(&place).is_none_or(|was| was.token != record.token);
            let made = is_made_here(&record, is_first);
            if is_first {
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
                        never_comes_again(&written, &record, greatest, found);
                    }
                    self.greatest.insert(place.clone(), greatest.unwrap_or(record.token).max(record.token));
                    whole_at_once(&written, &record, found);
                    boot_is_approved(&written, &record, approved, found);
                    let claim = Claim { at, store: number, origin: origin.clone(), record: record.clone() };
                    if self.is_first(attempt, claim.clone()) {
                        claimed_while_open(&id, &claim, views, found);
                        marks.claimed(&id, (number, &claim.record), views);
                    }
                }
                Standing::Released => {
                    // What was claimed and released promises nothing. An accepted request lives.
                    if !is_first {
                        self.born.remove(&place);
                    }
                    self.released.entry(attempt).or_insert(at);
                }
                Standing::Tombstone => {
                    if let Some((born, record)) = self.born.get(&place) {
                        kept_for_its_life(&written, *born, record.lives.0, "expired", found);
                    }
                }
                Standing::Settled => self.settles(attempt, (number, at), record.lives.1),
                Standing::InDoubt => {}
            }
            if let Some(was) = self.last.get(&place) {
                arrows_are_followed(&written, was, &record, found);
                tokens_grow(&written, was, &record, found);
            }
            self.last.insert(place, record);
        }
    }

    /// Keeps since when and until when an accepted request waits.
    fn waits(&mut self, origin: &Origin, id: &KeyId, record: Option<&Record>, at: Duration) {
        let ended = [Standing::Settled, Standing::Tombstone];
        let waits = record.is_some_and(|record| record.accepted && !ended.contains(&record.standing));
        if !waits && !self.waiting.contains_key(id) {
            return;
        }
        let known = self.waiting.entry(id.clone()).or_default();
        match known.iter_mut().find(|known| known.origin == *origin && known.until.is_none()) {
            Some(open) if !waits => open.until = Some(at),
            None if waits => known.push(Waiting { origin: origin.clone(), since: at, until: None }),
            Some(_) | None => {}
        }
    }

    /// Keeps the end of a settled record's life. It counts from its claim in that store, if any.
    fn settles(&mut self, attempt: Attempt, (store, at): (u64, Duration), life: Duration) {
        let claims = self.claims.get(&attempt).into_iter().flatten();
        let since = claims.filter(|claim| claim.store == store).map(|claim| claim.at).min();
        let until = since.unwrap_or(at).saturating_add(least(life));
        let (_, id, token) = attempt;
        self.settled.entry(id).or_default().push(Settled { token, at, until });
    }

    /// Keeps a claim. True if it is the first one of its attempt in that store.
    fn is_first(&mut self, attempt: Attempt, claim: Claim) -> bool {
        let claims = self.claims.entry(attempt).or_default();
        let is_first = claims.iter().all(|known| known.store != claim.store);
        claims.push(claim);
        is_first
    }

    pub(super) fn claim(&self, sent: &Attempted) -> Option<&Claim> {
        let claims = self.claims.get(&attempt(sent))?;
        claims.iter().find(|claim| claim.at <= sent.at)
    }

    /// True if a key may have been forgotten at the time of this claim: an attempt of this token or
    /// a later one was settled, and every life promised until then, tombstone included, was over.
    /// Then the key begins anew, as if it had never been used. A doubt is never forgotten, unless
    /// no store knew of it that is left. Nor is anything while a request waits that was accepted
    /// before it: its job asks for no new life.
    pub(super) fn is_forgotten(&self, other: &Attempted, claim: &Claim, views: &Views) -> bool {
        let attempt = attempt(other);
        let claims = self.claims.get(&attempt).map(Vec::as_slice).unwrap_or_default();
        let lodged = self.holders.get(&attempt).into_iter().flat_map(BTreeMap::keys);
        let mut knew = self.arrived.get(&attempt).into_iter().flatten().chain(lodged);
        let view = views.of_epoch(claim.record.token.epoch);
        let lives = |at: &Origin| view.is_none_or(|view| view.origin(&at.region).as_ref() == Some(at));
        let waits = |waiting: &Waiting| {
            let until = waiting.until.unwrap_or(Duration::MAX);
            waiting.since <= other.at && claim.at < until && lives(&waiting.origin)
        };
        if self.waiting.get(&other.id).into_iter().flatten().any(waits) {
            return false;
        }
        let known = knew.any(lives);
        let gone = !known && !claims.is_empty() && claims.iter().all(|other| other.store != claim.store);
        let life = |other: &Claim| other.record.lives.1;
        let over =
            |other: &Claim| !life(other).is_zero() && other.at.saturating_add(least(life(other))) <= claim.at;
        gone && claims.iter().all(over) || self.is_past(&other.by, &other.id, other.token, claim.at)
    }

    /// True if every life promised for this attempt was over by then, and it had its end: it was
    /// settled, or the region let a later one run and released that.
    fn is_past(&self, by: &RegionName, id: &KeyId, token: Token, at: Duration) -> bool {
        let later = self.released.range((by.clone(), id.clone(), token)..);
        let later = later.take_while(|((of, key, _), _)| of == by && key == id);
        let mut later = later.skip_while(|((.., of), _)| *of == token);
        let over = |claim: &Claim| claim.at.saturating_add(least(claim.record.lives.1)) <= at;
        if later.any(|(attempt, released)| {
            *released <= at && self.claims.get(attempt).is_some_and(|all| all.iter().all(over))
        }) {
            return true;
        }
        let mut claims = self.claims.get(&(by.clone(), id.clone(), token)).into_iter().flatten();
        let settled = self.settled.get(id).into_iter().flatten();
        let mut settled = settled.filter(|settled| settled.at <= at && settled.token >= token).peekable();
        settled.peek().is_some() && settled.all(|settled| settled.until <= at) && claims.all(over)
    }

    /// Leaves out rows of earlier lives, which a store may show for longer than they were promised.
    pub(super) fn of_last_life(&self, id: &KeyId, rows: &mut Vec<Row>) {
        let claimed = |row: &Row| {
            let claims = self.claims.get(&(row.origin.region.clone(), id.clone(), row.token))?;
            Some((row.token, claims.iter().map(|claim| claim.at).min()?))
        };
        let later: Vec<(Token, Duration)> = rows.iter().filter_map(claimed).collect();
        rows.retain(|row| {
            let past = |at| self.is_past(&row.origin.region, id, row.token, at);
            !later.iter().any(|(token, at)| *token > row.token && past(*at))
        });
    }

    /// The time at which the attempt was first claimed in the same store, whenever it was sent.
    pub(super) fn claimed(&self, sent: &Attempted, store: u64) -> Option<Duration> {
        let claims = self.claims.get(&attempt(sent))?;
        claims.iter().find(|claim| claim.store == store).map(|claim| claim.at)
    }

    pub(super) fn is_lodged(&self, sent: &Attempted, origin: &Origin) -> bool {
        let lodged = self.lodged.get(&(origin.clone(), sent.id.clone(), sent.token));
        lodged.is_some_and(|at| *at <= sent.at)
    }

    /// The stores where the claim of a send was lodged before this moment.
    pub(super) fn holders(&self, sent: &Attempted, before: Duration) -> impl Iterator<Item = &Origin> {
        let all = self.holders.get(&attempt(sent));
        all.into_iter().flatten().filter(move |(_, at)| **at < before).map(|(holder, _)| holder)
    }

    pub(super) fn is_released(&self, sent: &Attempted, by: Duration) -> bool {
        let released = self.released.get(&attempt(sent));
        released.is_some_and(|at| *at <= by)
    }
}

/// A claim is committed under a gate that lets its key run. The store has not given the key up,
/// and has caught up with it if it gained it. A claim on a proof, as routes under escrow have,
/// needs no catching up and is no risk.
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

/// Otherwise a claim's absence at a store proves nothing.
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

/// A final record stays: a tombstone is deleted after every row that it hides.
fn final_stays(written: &Written, last: Option<&Record>, beside_open: bool, found: &mut Found) {
    if beside_open && last.is_some_and(|last| last.standing == Standing::Tombstone) {
        let rest = " while another region's open row of it stood there";
        written.breaks(Invariant::FinalStays, "forgot", rest, found);
    }
}

fn arrows_are_followed(written: &Written, was: &Record, is: &Record, found: &mut Found) {
    use Standing::{Claimed, InDoubt, Released, Settled, Tombstone};
    let grows = is.token > was.token;
    let stays = is.token == was.token;
    let follows = match (was.standing, is.standing) {
        // A new attempt: a claim whose hold is over reads as a doubt. Tokens are judged apart.
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
        let rest = format!(" from {from:?} {} to {to:?} {}", was.token, is.token);
        written.breaks(Invariant::Arrows, "moved", &rest, found);
    }
}

fn tokens_grow(written: &Written, was: &Record, is: &Record, found: &mut Found) {
    if is.standing == Standing::Claimed && is.token <= was.token {
        let rest = format!(" under {} after {}", is.token, was.token);
        written.breaks(Invariant::TokensGrow, "claimed", &rest, found);
    }
}

/// True if a store made this record itself: a claim, or a stand-in that is complete at once.
fn is_made_here(record: &Record, is_first: bool) -> bool {
    match record.standing {
        Standing::Claimed => true,
        Standing::Settled | Standing::Released => is_first && record.hold.is_zero(),
        Standing::InDoubt | Standing::Tombstone => false,
    }
}

/// A token does not come again after its key was forgotten.
fn never_comes_again(written: &Written, record: &Record, greatest: Token, found: &mut Found) {
    if record.token <= greatest {
        let rest = format!(" under {} once more, after {greatest}", record.token);
        written.breaks(Invariant::TokensGrow, "claimed", &rest, found);
    }
}

/// If its writer died before it completed the record, the claim would read as an attempt.
fn whole_at_once(written: &Written, record: &Record, found: &mut Found) {
    // Without that check, rows are as an older version left them.
    if record.hold.is_zero() && !is_disabled(Check::NamedAnswered) {
        let rest = format!(" under {}, which nobody sends, and says nothing of what it is for", record.token);
        written.breaks(Invariant::WholeAtOnce, "claimed", &rest, found);
    }
}

/// A life is over once that much time has passed, no matter which date a clock shows.
fn kept_for_its_life(written: &Written, born: Duration, life: Duration, what: &str, found: &mut Found) {
    if written.at < born + least(life) {
        let rest = format!(" {:?} after it was made, and {life:?} were promised", written.at - born);
        written.breaks(Invariant::KeptForItsLife, what, &rest, found);
    }
}

fn boot_is_approved(written: &Written, record: &Record, approved: bool, found: &mut Found) {
    if !approved {
        let rest = format!(" under {} while its boot was not approved", record.token);
        written.breaks(Invariant::BootApproved, "claimed", &rest, found);
    }
}
