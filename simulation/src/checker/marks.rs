//! Risk flags that are not earned: marks at risk of a region that cannot have run the key.
//!
//! A mark too many costs no effect. But it explains a double that nobody would look at then. Their
//! number is reported and breaks nothing: a gateway that lacks a view from before a loss marks all
//! its keys. This file must not believe a gateway's list of losses: the views say who owned a key.

use std::collections::BTreeMap;

use onceway::protocol::key::KeyId;

use super::news::Heard;
use super::views::Views;
use crate::table::Record;

/// Runs at risk, counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Marks {
    /// The runs that were marked.
    pub marked: u64,
    /// Those of them at risk of a region that cannot have run the key.
    pub over: u64,
    heard: Heard,
}

impl Marks {
    /// Takes in what stores had heard at the last look. A region that was heard of since then may
    /// still be a risk. So the count depends a little on the number of looks.
    pub(super) fn heard(&mut self, heard: Heard) {
        self.heard = heard;
    }

    pub(super) fn claimed(&mut self, id: &KeyId, (store, record): (u64, &Record), views: &Views) {
        if record.risk.is_empty() {
            return;
        }
        self.marked += 1;
        let nothing = BTreeMap::new();
        let heard = self.heard.get(&store).unwrap_or(&nothing);
        let may_have_run = |lost| views.may_have_run(lost, id, (store, record.token.epoch), heard);
        if !record.risk.iter().all(may_have_run) {
            self.over += 1;
        }
    }
}
