//! What can be judged at the end of a scenario only: doubles that no journal has (7).
//!
//! Neighbours: the audit of each gateway compares rows and journals what it finds, which takes it a while. It must not be asked before that.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use onceway::protocol::key::KeyId;
use onceway::protocol::record::{Row, State};
use onceway::protocol::region::RegionName;

use super::{Found, Invariant};
use crate::table::Truth;
use crate::upstream::Happening;
use crate::words::key;

/// 7: of a key that ran twice, and of which some store shows both answers, a journal says so.
pub(super) fn doubles_are_journalled(
    ledger: &BTreeMap<KeyId, Vec<Happening>>,
    stores: &[Truth],
    found: &mut Found,
) {
    let noted: BTreeSet<&KeyId> = stores
        .iter()
        .flat_map(|store| &store.journal)
        .filter(|(_, entry)| entry.kind == "double")
        .filter_map(|(id, _)| id.as_ref())
        .collect();
    for (id, effects) in ledger.iter().filter(|(id, effects)| effects.len() > 1 && !noted.contains(id)) {
        if let Some(rows) = stores.iter().find_map(|store| answered_twice(store, id)) {
            let at = effects.iter().map(|effect| effect.at).max().unwrap_or(Duration::ZERO);
            let text = format!("{} ran twice, and no journal says so of {rows}", key(id));
            found.push(Invariant::DoublesJournalled, at, text);
        }
    }
}

/// The answers that a store shows of a key, if there is more than one.
fn answered_twice(store: &Truth, id: &KeyId) -> Option<String> {
    let rows = store.rows.get(id)?;
    let settled = rows.iter().filter(|row| matches!(row.state, State::Settled { .. }));
    let told = |row: &Row| {
        let risk: Vec<&str> = row.risk.iter().map(RegionName::as_str).collect();
        let risk =
            if risk.is_empty() { String::new() } else { format!(" at risk of {}", risk.join(" and ")) };
        format!("{} {}{risk}", row.origin, row.token)
    };
    let told: Vec<String> = settled.map(told).collect();
    (told.len() > 1).then(|| told.join(", "))
}
