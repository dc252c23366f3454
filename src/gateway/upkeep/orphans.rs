//! Finds other regions' open attempts under keys that this region owns: no other region ends them,
//! and their clients may never come back.
//!
//! Each process looks once per view, in the order of keys, when all gained keys may start. By then
//! all rows of former owners have arrived, and later ones need a new view. Open attempts go on the
//! region's list, for [`super::sweep`] and operators. Must not end anything, nor write a record.

use crate::gateway::instance::Gateway;
use crate::gateway::telemetry::metrics;
use crate::ports::{Ports, Upkeep};
use crate::protocol::key::KeyId;

/// Rows in one look.
const STRETCH: u32 = 2_000;
/// Looks in one sweep.
const LOOKS: usize = 25;

/// State of the search through other origins' rows.
#[derive(Default)]
pub(in crate::gateway) struct Orphans {
    /// The epoch of the view that is searched under; 0: none so far.
    epoch: u64,
    after: Option<KeyId>,
    done: bool,
}

impl Orphans {
    /// Looks a stretch further, if there is one.
    pub(in crate::gateway) async fn look<P: Ports>(&mut self, gateway: &Gateway<P>) {
        let Some((_, state)) = gateway.gate_state() else { return };
        // Before the gate is open, rows may be on their way, and also the answers of rows that are
        // here.
        if !state.is_open() {
            return;
        }
        if self.epoch != state.view.epoch() {
            *self = Self { epoch: state.view.epoch(), ..Self::default() };
        }
        let store = gateway.ports.store();
        for _ in 0..LOOKS {
            if self.done {
                return;
            }
            let page = metrics::upkeep("sweep", store.foreign(self.after.as_ref(), STRETCH)).await;
            let Ok(page) = page else { return };
            let mut ours = page.open;
            ours.retain(|id| state.view.owner(id) == Some(&gateway.settings.me));
            if !ours.is_empty() && metrics::upkeep("sweep", store.enlist(&ours)).await.is_err() {
                return;
            }
            self.after = page.through.or(self.after.take());
            self.done = !page.more;
        }
    }
}
