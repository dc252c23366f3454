//! Risk flags that are not earned: marks at risk of a region that cannot have run the key (24).
//!
//! A mark too many costs no effect. But it explains a double that nobody would look at then, and a
//! journal in which every run is at risk tells nothing. This file must not believe a gateway's list
//! of losses: the views say who owned a key.

use std::collections::BTreeMap;
use std::time::Duration;

use onceway::protocol::key::KeyId;
use onceway::protocol::region::Origin;

use super::records::Claim;
use super::views::Views;
use super::{Found, Invariant};
use crate::table::HeardOf;
use crate::words::key;

/// Of a hundred runs at risk, at most so many may be marked too much, ...
const MOST_OF_A_HUNDRED: u64 = 2;
/// ... beside these few: a gateway learns a moment after its store that a region was heard of. One
/// that lacks a view from before a loss marks all its keys (30 in swarm seed 1623).
const FEW: u64 = 40;

pub(super) type Heard = BTreeMap<u64, BTreeMap<Origin, HeardOf>>;

/// Runs at risk, counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Marks {
    /// The runs that were marked.
    pub marked: u64,
    /// Those of them at risk of a region that cannot have run the key.
    pub over: u64,
    heard: Heard,
    /// The first of these, and when.
    first: Option<(Duration, String)>,
}

impl Marks {
    /// Takes in what stores had heard at the last look. A region that was heard of since then may
    /// still be a risk. So the count depends a little on the number of looks.
    pub(super) fn heard(&mut self, heard: Heard) {
        self.heard = heard;
    }

    pub(super) fn claimed(&mut self, id: &KeyId, claim: &Claim, views: &Views) {
        let Claim { at, store, origin, record } = claim;
        if record.risk.is_empty() {
            return;
        }
        self.marked += 1;
        let nothing = BTreeMap::new();
        let heard = self.heard.get(store).unwrap_or(&nothing);
        let may_have_run = |lost| views.may_have_run(lost, id, (*store, record.token.epoch), heard);
        let wrong = record.risk.iter().find(|lost| !may_have_run(lost));
        if let Some(lost) = wrong {
            self.over += 1;
            let text = || {
                format!(
                    "{origin} ran {} {} at risk of {lost}, which cannot have run it",
                    key(id),
                    record.token
                )
            };
            self.first.get_or_insert_with(|| (*at, text()));
        }
    }

    /// 24: at most a few marks are not earned.
    pub(super) fn are_earned(&self, found: &mut Found) {
        let Self { marked, over, first, heard: _ } = self;
        if *over <= FEW + marked * MOST_OF_A_HUNDRED / 100 {
            return;
        }
        if let Some((at, first)) = first {
            let text = format!("{over} of {marked} runs at risk are marked too much: {first}");
            found.push(Invariant::MarksAreEarned, *at, text);
        }
    }
}
