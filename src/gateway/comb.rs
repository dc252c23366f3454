//! Finds what other regions left open under keys that this one owns: nobody else ends it, and its client may never come back.
//!
//! Once everything that a view gave may start here, everything that its former owners left has arrived: then their rows are looked through
//! once, in the order of keys, and what is open is put on the region's list, from which [`super::sweep`] and operators end it. Nothing of
//! another origin appears later under keys that are owned here, but with a view: so each view is combed once by each process. Neighbours:
//! `ports::upkeep` looks, `protocol::view` says who owns. It must not end anything, and writes no record.

use super::{Gateway, metrics};
use crate::ports::{Ports, Upkeep};
use crate::protocol::key::KeyId;

/// Rows in one look.
const STRETCH: u32 = 2_000;
/// Looks in one sweep.
const LOOKS: usize = 25;

/// How far other origins' rows were looked through.
#[derive(Default)]
pub(super) struct Comb {
    /// Under which view; 0: none so far.
    epoch: u64,
    after: Option<KeyId>,
    done: bool,
}

impl Comb {
    /// Looks a stretch further, if there is one.
    pub(super) async fn look<P: Ports>(&mut self, gateway: &Gateway<P>) {
        let Some((_, state)) = gateway.gate_state() else { return };
        // Before that, rows may be on their way, and the answers of those that are here too.
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
