//! The orders in which a region looks at its own rows, as the indexes of its Postgres keep them.
//!
//! Without them, every look of the reaper, the sweep and the audit would go through every living
//! key. [`super`] writes each own row through [`Orders::turn`].

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound::{Excluded, Included};

use onceway::protocol::key::KeyId;

use super::stored::Stored;

/// Keys by a moment of their rows.
type Dated = BTreeMap<i64, BTreeSet<KeyId>>;

/// The own rows in the orders of their look-ups.
#[derive(Clone, Debug, Default)]
pub(super) struct Orders {
    /// By the time at which they are due.
    due: Dated,
    /// By the time of their last claim.
    held: Dated,
    /// The keys that ran at risk.
    risky: BTreeSet<KeyId>,
}

impl Orders {
    /// Notes the change of an own row.
    pub(super) fn turn(&mut self, id: &KeyId, was: Option<&Stored>, is: Option<&Stored>) {
        if let Some(was) = was {
            forget(&mut self.due, was.due, id);
            forget(&mut self.held, was.held, id);
            self.risky.remove(id);
        }
        if let Some(is) = is {
            self.due.entry(is.due).or_default().insert(id.clone());
            self.held.entry(is.held).or_default().insert(id.clone());
            if !is.row.risk.is_empty() {
                self.risky.insert(id.clone());
            }
        }
    }

    /// Keys whose rows are due at `by`, the first due first.
    pub(super) fn due(&self, by: i64) -> impl Iterator<Item = &KeyId> {
        self.due.range(..=by).flat_map(|(_, ids)| ids)
    }

    /// Keys claimed after one moment and not after another, the first claimed first.
    pub(super) fn held(&self, after: i64, last: i64) -> impl Iterator<Item = &KeyId> {
        // An empty range whose ends cross would panic.
        let stretch = (Excluded(after.min(last)), Included(last));
        self.held.range(stretch).flat_map(|(_, ids)| ids)
    }

    pub(super) fn risky(&self) -> impl Iterator<Item = &KeyId> {
        self.risky.iter()
    }
}

fn forget(dated: &mut Dated, at: i64, id: &KeyId) {
    if let Some(ids) = dated.get_mut(&at) {
        ids.remove(id);
        if ids.is_empty() {
            dated.remove(&at);
        }
    }
}
