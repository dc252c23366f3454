//! Dry runs: the expected result of an operator's act, and its obstacles, by the checks of the act.
//!
//! Nothing is written and no view is learned. Problems that show only while acting are not known.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde::Serialize;

use super::admin_ops::{self, Moved, Wanted};
use super::break_glass::WayOut;
use super::rebuild::{self, Retiring};
use crate::gateway::authority::act_error::{ActError, not_yet};
use crate::gateway::authority::register::learn;
use crate::gateway::authority::takeover;
use crate::gateway::instance::Gateway;
use crate::ports::Ports;
use crate::protocol::change::Change;
use crate::protocol::region::RegionName;
use crate::protocol::register::{Accepted, agreed};
use crate::protocol::ring::Ring;
use crate::protocol::view::View;

/// An act to rehearse, with the parameters of the method of [`Gateway`] that does it.
#[allow(missing_docs, reason = "the methods say it")]
pub enum Act<'a> {
    Found { escrow: BTreeSet<Arc<str>>, epoch_above: Option<u64> },
    Apply { ring: Arc<Ring>, escrow: BTreeSet<Arc<str>>, expect_epoch: u64 },
    Drain { region: &'a RegionName, force: bool },
    Resume { region: &'a RegionName },
    Rebuild { region: &'a RegionName, accept_risk: bool },
    Takeover { region: &'a RegionName, accept_risk: bool },
    BreakGlass { stopped: &'a BTreeSet<RegionName> },
    LeavePoison { above: u64, stopped: &'a BTreeSet<RegionName> },
}

/// Expected result of an act. Field names are a contract: add, never rename.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Rehearsal {
    /// Always true: nothing was changed.
    pub dry_run: bool,
    /// The present epoch; 0 before the founding.
    pub from_epoch: u64,
    /// The epoch that the act would lead to. `None` if the epoch is drawn only when acting.
    pub epoch: Option<u64>,
    /// False if the act would change nothing.
    pub changes: bool,
    /// Arcs that would change their owner.
    pub moves: Vec<Moved>,
    /// Other consequences, in words.
    pub effects: Vec<String>,
    /// The generation of the new store, if a store is to be replaced.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub generation: Option<u32>,
    /// Regions that would be asked to accept the risk and answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waived: Option<Vec<String>>,
}

impl Rehearsal {
    fn between(view: &View, next: &View, effects: Vec<String>) -> Self {
        let name = |region: Option<RegionName>| region.map_or("nobody".to_owned(), |name| name.to_string());
        let moves = view.moves(next).into_iter();
        let moves = moves.map(|((from, to), arcs)| Moved::new(name(from), name(to), arcs)).collect();
        Self { from_epoch: view.epoch(), changes: true, moves, effects, ..Self::nothing(next.epoch()) }
    }

    fn nothing(epoch: u64) -> Self {
        Self { dry_run: true, from_epoch: epoch, epoch: Some(epoch), ..Self::default() }
    }
}

impl<P: Ports> Gateway<P> {
    /// Computes the expected result of the act, or its failure, and changes nothing.
    pub async fn rehearse(self: &Arc<Self>, act: Act<'_>) -> Result<Rehearsal, ActError> {
        match act {
            Act::Found { escrow, epoch_above } => {
                let Accepted { view: first, .. } = self.may_found(escrow, epoch_above).await?;
                let voters: Vec<&str> = first.voters().keys().map(RegionName::as_str).collect();
                let voters = format!("voters {}", voters.join(", "));
                let effects = vec!["all regions of the ring would serve".to_owned(), voters];
                let epoch = Some(first.epoch());
                Ok(Rehearsal { epoch, changes: true, effects, ..Rehearsal::nothing(0) })
            }
            Act::Apply { ring, escrow, expect_epoch } => {
                self.rehearse_move(self.may_apply(ring, escrow, expect_epoch)?).await
            }
            Act::Drain { region, force } => self.rehearse_move(self.may_drain(region, force)?).await,
            Act::Resume { region } => self.rehearse_move(self.may_resume(region)?).await,
            Act::Rebuild { region, accept_risk } => self.rehearse_rebuild(region, accept_risk).await,
            Act::Takeover { region, accept_risk } => self.rehearse_takeover(region, accept_risk).await,
            Act::LeavePoison { above, stopped } => {
                let WayOut { base, view, .. } = self.may_leave_poison(above, stopped).await?;
                let effects = vec![format!(
                    "everything above epoch {above} would be left: its regions and voters go on, in an epoch above all that is held"
                )];
                Ok(Rehearsal { epoch: None, ..Rehearsal::between(&base, &view, effects) })
            }
            Act::BreakGlass { stopped } => {
                let WayOut { base, view, .. } = self.may_break(self.known().await?, stopped).await?;
                let lost = stopped.iter().map(|name| format!("{name} would be lost, and vote no more"));
                let ahead =
                    "the new view's epoch would be a million or more ahead: it is drawn when it is done";
                let effects = lost.chain([ahead.to_owned()]).collect();
                Ok(Rehearsal { epoch: None, ..Rehearsal::between(&base, &view, effects) })
            }
        }
    }

    async fn rehearse_move(self: &Arc<Self>, wanted: Wanted) -> Result<Rehearsal, ActError> {
        let to = match wanted {
            Wanted::Nothing(base) => return Ok(Rehearsal::nothing(base.epoch())),
            Wanted::Move { to, .. } => to,
        };
        let (base, target) = (&to.base, to.draft().map_err(ActError::not_yet)?);
        let mut hinders: Vec<String> = Vec::new();
        let losers: Vec<&RegionName> = base.losers(&target).collect();
        for loser in losers.iter().filter(|loser| ***loser != self.settings.me && self.is_silent(loser)) {
            hinders.push(format!("region {loser} does not answer, and could not give its keys up"));
        }
        let pending = self.gate_state().and_then(|(_, state)| state.pending);
        if pending.is_some_and(|pending| pending.target.placement() != target.placement()) {
            hinders.push("another change is pending here".to_owned());
        }
        hinders.extend(self.no_agreement(base).await);
        if !hinders.is_empty() {
            return not_yet(hinders.join("; "));
        }
        let pauses = |loser: &&RegionName| {
            format!("{loser} would pause the keys that it loses for a moment, and seal")
        };
        Ok(Rehearsal::between(base, &target, losers.iter().map(pauses).collect()))
    }

    /// Reason why the next view of `base` would not be agreed on now.
    async fn no_agreement(self: &Arc<Self>, base: &View) -> Option<String> {
        let held = learn::read(self, base).await;
        if !agreed(base.voters(), &learn::ids(held.iter())) {
            let names: Vec<&str> = held.keys().map(RegionName::as_str).collect();
            let names = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
            return Some(format!("no majority of the acceptors answers: {names} of {}", base.voters().len()));
        }
        takeover::is_unfinished(base, &held)
            .then(|| "a change that was begun and not ended comes first".to_owned())
    }

    async fn rehearse_rebuild(
        self: &Arc<Self>,
        region: &RegionName,
        accept_risk: bool,
    ) -> Result<Rehearsal, ActError> {
        let Retiring { base, next, .. } = self.may_rebuild(region, accept_risk).await?;
        let generation = rebuild::generation(next.as_ref().unwrap_or(&base), region);
        let Some(next) = next else {
            return Ok(Rehearsal { generation: Some(generation), ..Rehearsal::nothing(base.epoch()) });
        };
        if let Some(why) = self.no_agreement(&base).await {
            return not_yet(why);
        }
        let effects = vec![format!(
            "the present store of {region} would be retired for good; {region} would wait for one of generation {generation}"
        )];
        Ok(Rehearsal { generation: Some(generation), ..Rehearsal::between(&base, &next, effects) })
    }

    async fn rehearse_takeover(
        self: &Arc<Self>,
        region: &RegionName,
        accept_risk: bool,
    ) -> Result<Rehearsal, ActError> {
        let base = self.founded()?;
        let (mut rehearsal, after) = if admin_ops::is_declared(&base, region, accept_risk)? {
            let at = admin_ops::losses_of(&base, region).max().unwrap_or(base.epoch());
            let from_epoch = base.epoch();
            (Rehearsal { from_epoch, changes: accept_risk, ..Rehearsal::nothing(at) }, base)
        } else {
            let held = learn::read(self, &base).await;
            takeover::may_lose(&base, region, &held).map_err(ActError::not_yet)?;
            let frontier = takeover::frontier(self, &base, region, &BTreeSet::new()).await;
            let next = base.next(&Change::Lose { region: region.clone(), frontier });
            let next = next.map_err(|illegal| ActError::not_yet(illegal.to_string()))?;
            let effects =
                vec![format!("{region} would be lost; its keys would open elsewhere after the window")];
            (Rehearsal::between(&base, &next, effects), Arc::new(next))
        };
        if accept_risk {
            let heard = |name: &&RegionName| **name == self.settings.me || !self.is_silent(name);
            let waived: Vec<String> = after.serving().filter(heard).map(ToString::to_string).collect();
            rehearsal.effects.push(format!(
                "keys of {region} whose last rows never left it may run a second time, at once, in {}",
                if waived.is_empty() { "no region that answers".to_owned() } else { waived.join(", ") }
            ));
            rehearsal.waived = Some(waived);
        }
        Ok(rehearsal)
    }
}
