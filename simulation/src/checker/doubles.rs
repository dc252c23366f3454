//! Invariants about journals, which only the end of a scenario can judge: a gateway journals what
//! it finds in its store a while later.
//!
//! They do not judge by `protocol::double`: a fault there would hide itself.

use std::collections::BTreeSet;
use std::time::Duration;

use onceway::protocol::double::Why;
use onceway::protocol::key::KeyId;
use onceway::protocol::record::{Row, State};

use super::invariant::{Found, Invariant};
use crate::table::Truth;
use crate::upstream::Ledger;
use crate::words::{joined, key};

/// If a key ran twice and some store shows both answers, a journal says so.
pub(super) fn doubles_are_journalled(ledger: &Ledger, stores: &[Truth], found: &mut Found) {
    let noted: BTreeSet<&KeyId> = journalled_doubles(stores).collect();
    for (id, effects) in ledger.iter().filter(|(id, effects)| effects.len() > 1 && !noted.contains(id)) {
        if let Some(rows) = stores.iter().find_map(|store| answered_twice(store, id)) {
            let at = effects.iter().map(|effect| effect.at).max().unwrap_or(Duration::ZERO);
            let text = format!("{} ran twice, and no journal says so of {rows}", key(id));
            found.push(Invariant::DoublesJournalled, at, text);
        }
    }
}

/// A store that shows two attempts of a key settled has that in its own journal, with the
/// explanation. The risk that the claims name does not matter.
pub(super) fn doubles_are_found(stores: &[Truth], now: Duration, found: &mut Found) {
    for store in stores {
        for (id, rows) in &store.rows {
            let settled = settled(rows);
            for (at, one) in settled.iter().enumerate() {
                for other in settled[at + 1..].iter().filter(|other| other.nonce != one.nonce) {
                    let why = explained(one, other);
                    if !said(store, id).any(|said| said == Some(why)) {
                        let (key, at, why) = (key(id), &store.origin, why.name());
                        let shows = format!("{} and {}, {why}", describe_row(one), describe_row(other));
                        let text = format!("{key}: {at} shows {shows}, and its journal does not say so");
                        found.push(Invariant::DoublesFound, now, text);
                    }
                }
            }
        }
    }
}

/// A double that a journal does not explain raises an alert, so the key took effect twice.
pub(super) fn alarms_are_true(ledger: &Ledger, stores: &[Truth], now: Duration, found: &mut Found) {
    for store in stores {
        let doubles = store.journal.iter().filter(|(_, entry)| entry.explained == Some(Why::Unexplained));
        let once = |id: &KeyId| ledger.get(id).is_none_or(|effects| effects.len() < 2);
        for id in doubles.filter_map(|(id, _)| id.as_ref()).filter(|id| once(id)) {
            let text =
                format!("{}: {} journalled an unexplained double of one effect", key(id), store.origin);
            found.push(Invariant::AlarmsAreTrue, now, text);
        }
    }
}

/// Explains two attempts, by the rule of the reference: a risk, or one of them names the other.
fn explained(one: &Row, other: &Row) -> Why {
    let names = |row: &Row, other: &Row| {
        row.over.iter().any(|(origin, upto)| *origin == other.origin && *upto >= other.token)
    };
    match (one.risk.is_empty() && other.risk.is_empty(), names(one, other) || names(other, one)) {
        (false, _) => Why::Risk,
        (true, true) => Why::Over,
        (true, false) => Why::Unexplained,
    }
}

/// The entries of a store's journal about the doubles of a key.
fn said<'a>(store: &'a Truth, id: &'a KeyId) -> impl Iterator<Item = Option<Why>> + 'a {
    let doubles = store.journal.iter().filter(|(_, entry)| entry.kind == "double");
    doubles.filter(move |(of, _)| of.as_ref() == Some(id)).map(|(_, entry)| entry.explained)
}

fn describe_row(row: &Row) -> String {
    let risk = if row.risk.is_empty() { "" } else { " at risk of " };
    format!("{} {}{risk}{}", row.origin, row.token, joined(&row.risk, " and "))
}

/// The answers that a store shows of a key, if there is more than one.
fn answered_twice(store: &Truth, id: &KeyId) -> Option<String> {
    let settled = settled(store.rows.get(id)?);
    (settled.len() > 1).then(|| joined(settled.into_iter().map(describe_row), ", "))
}

fn settled(rows: &[Row]) -> Vec<&Row> {
    rows.iter().filter(|row| matches!(row.state, State::Settled { .. })).collect()
}

/// The keys of which some journal has a double.
pub(crate) fn journalled_doubles(stores: &[Truth]) -> impl Iterator<Item = &KeyId> {
    let entries = stores.iter().flat_map(|store| &store.journal);
    entries.filter(|(_, entry)| entry.kind == "double").filter_map(|(id, _)| id.as_ref())
}
