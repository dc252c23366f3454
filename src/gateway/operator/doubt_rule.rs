//! An operator's change of the rule by which keys in doubt end: all of one route, at one go.
//!
//! A doubt keeps the rule of its claim (docs/protocol.md#rule-13). A reload changes none: a route
//! that says `rerun` from now on must not run keys again that waited for a person. Only this act
//! does, and the store journals it for each key. The rule is the route's own of now, or `park`.

use serde::Serialize;

use super::acts::{Refusal, signed};
use crate::gateway::instance::Gateway;
use crate::gateway::policy::route::Route;
use crate::ports::store::Attempt;
use crate::ports::upkeep::{OpenAttempt, Who};
use crate::ports::{Ports, Upkeep};
use crate::protocol::key::KeyId;
use crate::protocol::record::{Recovery, State};

/// Doubts in one statement.
const PAGE: u32 = 500;

/// Result of the act, or of its dry run.
#[derive(Clone, Debug, Serialize)]
pub struct RuleChange {
    /// The region whose own attempts it is about.
    pub region: String,
    pub route: String,
    /// The rule of now: `park`, `probe` or `rerun N`.
    pub recovery: String,
    /// Attempts in doubt that changed, or would in a dry run.
    pub changed: u64,
    /// Attempts in doubt that went by that rule before.
    pub same: u64,
    /// Attempts of other regions under keys of this one. Their rows are not this region's to
    /// change: ask there, or settle or release each key.
    pub elsewhere: u64,
    pub dry_run: bool,
}

impl<P: Ports> Gateway<P> {
    /// Has this region's keys in doubt of one route go by its rule of now, or by `park`: `rule` is
    /// `rerun`, `probe` or `park`. A dry run counts only.
    ///
    /// # Errors
    /// [`Refusal::Malformed`] if there is no such route, or it says another rule, or who or why is
    /// missing; [`Refusal::Store`] if the store failed. Keys before that have changed: ask again.
    pub async fn change_doubt_rule(
        &self,
        route: &str,
        rule: &str,
        by: Who<'_>,
        dry_run: bool,
    ) -> Result<RuleChange, Refusal> {
        signed(by)?;
        let live = self.live();
        let named = live.routes.0.iter().find(|known| &*known.name == route);
        let Some((named, policy)) = named.and_then(|named| Some((named, named.policy()?))) else {
            return Err(Refusal::Malformed(format!("no route with keys is named {route:?}")));
        };
        let recovery = rule_of_now(policy.recovery, rule).map_err(Refusal::Malformed)?;
        let mut change = RuleChange {
            region: self.settings.me.to_string(),
            route: route.to_owned(),
            recovery: recovery.to_string(),
            changed: 0,
            same: 0,
            elsewhere: 0,
            dry_run,
        };
        let mut after: Option<KeyId> = None;
        loop {
            let page = self.ports.store().doubts(after.as_ref(), PAGE).await.map_err(Refusal::Store)?;
            after = page.last().filter(|_| page.len() >= PAGE as usize).map(|last| last.open.id.clone());
            let open = page.into_iter().map(|listed| listed.open);
            let is_doubt = |open: &OpenAttempt| matches!(open.row.state, State::InDoubt { .. });
            let open = open.filter(|open| is_doubt(open) && self.is_of(named, open));
            let (own, others): (Vec<_>, Vec<_>) = open.partition(|open| open.row.origin == self.origin);
            let (to_change, same): (Vec<_>, Vec<_>) =
                own.into_iter().partition(|open| open.row.recovery != recovery);
            (change.same, change.elsewhere) =
                (change.same + same.len() as u64, change.elsewhere + others.len() as u64);
            let attempts: Vec<Attempt> = to_change.iter().map(OpenAttempt::attempt).collect();
            change.changed += match dry_run || attempts.is_empty() {
                true => attempts.len() as u64,
                false => {
                    let store = self.ports.store();
                    store.change_rule(&attempts, recovery, by).await.map_err(Refusal::Store)?
                }
            };
            if after.is_none() {
                break;
            }
        }
        if !dry_run {
            tracing::warn!(
                route,
                rule = change.recovery,
                changed = change.changed,
                "an operator changed the rule of keys in doubt"
            );
        }
        Ok(change)
    }

    /// True if a listed attempt is of this route, whatever name the route had at its claim. Where
    /// several routes take its path and end doubts differently, the name of then decides.
    fn is_of(&self, route: &Route, open: &OpenAttempt) -> bool {
        let live = self.live();
        let only = live.routes.of_path(&open.path).is_some();
        route.path.matches(&open.path) && (only || open.route == route.name)
    }
}

/// The rule that an operator may name: the route's own, or `park`.
fn rule_of_now(says: Recovery, named: &str) -> Result<Recovery, String> {
    match named {
        _ if named == Recovery::Park.name() => Ok(Recovery::Park),
        _ if named == says.name() => Ok(says),
        _ if Recovery::NAMES.contains(&named) => Err(format!(
            "the route says recovery = {:?}: keys in doubt go by the route's rule of now or by \"park\", so change the route first",
            says.name()
        )),
        _ => {
            let (last, others) = Recovery::NAMES.split_at(Recovery::NAMES.len() - 1);
            Err(format!("a rule is {} or {}, not {named:?}", others.join(", "), last[0]))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_is_the_routes_own_of_now_or_park() {
        let rerun = Recovery::Rerun { max_attempts: 7 };
        let (park, probe) = (Recovery::Park, Recovery::Probe);
        for (says, named, expected) in [
            (rerun, "rerun", Some(rerun)),
            (rerun, "park", Some(park)),
            (rerun, "probe", None),
            (probe, "probe", Some(probe)),
            (park, "park", Some(park)),
            (park, "rerun", None),
            (rerun, "rerun 9", None),
            (rerun, "", None),
        ] {
            assert_eq!(rule_of_now(says, named).ok(), expected, "{says}, {named}");
        }
    }
}
