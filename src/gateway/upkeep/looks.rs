//! Progress of the search for keys that ran twice, in this process.
//!
//! [`super::doubles`] searches.

use serde::Serialize;

use crate::protocol::time::Moment;

#[derive(Default)]
pub struct Looks {
    /// Beginning of the pass that is under way.
    pub(super) begun: Option<Moment>,
    /// Beginning of the last whole pass.
    pub(super) whole: Option<Moment>,
    /// All but the age, which grows by itself.
    pub(super) status: AuditStatus,
}

/// Progress of one gateway's search for keys that ran twice.
#[derive(Clone, Debug, Default, Serialize)]
pub struct AuditStatus {
    /// Doubles in the region's journal; absent until it was read.
    pub doubles: Option<u64>,
    /// Those without an explanation: each is a bug.
    pub unexplained: Option<u64>,
    /// Whole passes over all records, since the gateway began.
    pub passes: u64,
    /// Milliseconds since the last whole pass began, or else the gateway.
    pub age_ms: u64,
    /// Duration of that pass, in milliseconds; absent if there was none.
    pub took_ms: Option<u64>,
    /// Records that the pass under way has looked at.
    pub looked_at: u64,
}

impl Looks {
    pub(super) fn ended(&mut self, now: Moment) {
        if let Some(begun) = self.begun.take() {
            self.whole = Some(begun);
            self.status.took_ms = Some(now.since(begun).as_millis() as u64);
            self.status.passes += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::examples::at;

    #[test]
    fn a_pass_is_as_old_as_its_beginning() {
        let mut looks = Looks { begun: Some(at(1_000)), ..Looks::default() };
        looks.ended(at(4_000));
        assert_eq!((looks.whole, looks.status.took_ms), (Some(at(1_000)), Some(3_000)));
        looks.ended(at(5_000));
        assert_eq!(looks.status.passes, 1, "none was under way");
    }
}
