//! What can be judged at the end of a scenario only: doubles that no journal has (7).
//!
//! Neighbours: the audit of each gateway compares rows and journals what it finds, which takes it a while. It must not be asked before that.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use onceway::protocol::key::KeyId;
use onceway::protocol::record::State;

use super::{Found, Invariant};
use crate::table::Truth;
use crate::upstream::Happening;

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
    let seen = |id: &KeyId| {
        stores
            .iter()
            .filter_map(|store| store.rows.get(id))
            .any(|rows| rows.iter().filter(|row| matches!(row.state, State::Settled { .. })).count() > 1)
    };
    for (id, effects) in ledger.iter().filter(|(_, effects)| effects.len() > 1) {
        if seen(id) && !noted.contains(id) {
            let at = effects.iter().map(|effect| effect.at).max().unwrap_or(Duration::ZERO);
            found.push(Invariant::DoublesJournalled, at, format!("{id:?} ran twice, and no journal says so"));
        }
    }
}
