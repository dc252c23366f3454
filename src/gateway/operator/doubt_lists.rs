//! Keys in doubt, many at a time: the list of all regions, and a change of the rule by which they
//! end.
//!
//! A region that does not answer is named: a list without it must not look whole. A doubt keeps the
//! rule of its claim (docs/protocol.md#rule-13): only an operator's act changes it, journalled for
//! each key.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;

use super::acts::{DoubtStatus, Doubts, Refusal, signed};
use super::everywhere::Answers;
use crate::gateway::instance::Gateway;
use crate::gateway::policy::route::Route;
use crate::ports::peers::Question;
use crate::ports::store::{Attempt, StoreError};
use crate::ports::upkeep::{OpenAttempt, Who};
use crate::ports::{Ports, Upkeep};
use crate::protocol::key::{Key, KeyId, Tenant};
use crate::protocol::record::{Recovery, State};
use crate::protocol::region::RegionName;

#[derive(Clone, Debug, Default, Serialize)]
pub struct AllDoubts {
    /// The region that was asked, and asked the others.
    pub region: String,
    /// Moment of this report, milliseconds since 1970, by the gateway's clock.
    pub at_ms: i64,
    pub doubts: Vec<DoubtStatus>,
    /// Regions whose doubts are not among them, with the reason.
    pub silent: BTreeMap<String, String>,
    pub more: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

impl<P: Ports> Gateway<P> {
    /// One page of all regions' keys in doubt. An error: none answered, nor the own store.
    pub async fn all_doubts(
        self: &Arc<Self>,
        after: Option<&KeyId>,
        most: u32,
    ) -> Result<AllDoubts, StoreError> {
        let question = Question::Doubts { after: after.cloned(), most };
        let Answers { given, silent } = self.ask_all(&question, self.doubts(after, most)).await?;
        let (doubts, next) = merged(given, after, most);
        let (region, at_ms) = (self.settings.me.to_string(), self.date().as_millis());
        Ok(AllDoubts { region, at_ms, doubts, silent, more: next.is_some(), next })
    }
}

/// The pages of several regions as one, and the cursor of the next. A key counts only up to the end
/// of the shortest page that goes on: behind it, that region's keys are missing. Of a key on two
/// lists the owner's entry is shown.
fn merged(
    pages: Vec<(RegionName, Doubts)>,
    after: Option<&KeyId>,
    most: u32,
) -> (Vec<DoubtStatus>, Option<String>) {
    let (mut all, mut end): (BTreeMap<KeyId, DoubtStatus>, Option<KeyId>) = (BTreeMap::new(), None);
    for (name, page) in pages {
        let ids = page.doubts.into_iter().filter_map(|doubt| Some((id(&doubt)?, doubt)));
        let found: BTreeMap<KeyId, DoubtStatus> =
            ids.filter(|(id, _)| after.is_none_or(|after| id > after)).collect();
        if let Some((last, _)) = found.last_key_value().filter(|_| page.more) {
            end = Some(end.map_or(last.clone(), |end| end.min(last.clone())));
        }
        for (id, doubt) in found {
            let is_owner = doubt.owner.as_deref() == Some(name.as_str());
            if is_owner || !all.contains_key(&id) {
                all.insert(id, doubt);
            }
        }
    }
    let mut shown: Vec<_> =
        all.into_iter().filter(|(id, _)| end.as_ref().is_none_or(|end| id <= end)).collect();
    let goes_on = end.is_some() || shown.len() > most as usize;
    shown.truncate(most as usize);
    let next = shown.last().filter(|_| goes_on).map(|(id, _)| super::key::cursor(id));
    (shown.into_iter().map(|(_, doubt)| doubt).collect(), next)
}

fn id(doubt: &DoubtStatus) -> Option<KeyId> {
    Some(KeyId::new(Tenant::parse(&doubt.tenant).ok()?, Key::parse(&doubt.key).ok()?))
}

const PAGE: u32 = 500;

/// Result of the act, or of its dry run.
#[derive(Clone, Debug, Default, Serialize)]
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
    /// Other regions' attempts under keys of this one: ask there, or settle or release each key.
    pub elsewhere: u64,
    pub dry_run: bool,
}

impl<P: Ports> Gateway<P> {
    /// Has this region's keys in doubt of one route go by its rule of now (`rerun`, `probe`) or by
    /// `park`. A dry run counts only. [`Refusal::Malformed`] if there is no such route, it says
    /// another rule, or who or why is missing. If the store fails, some have changed: ask again.
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
            dry_run,
            ..RuleChange::default()
        };
        let mut after: Option<KeyId> = None;
        loop {
            let page = self.store().doubts(after.as_ref(), PAGE).await.map_err(Refusal::Store)?;
            after = page.last().filter(|_| page.len() >= PAGE as usize).map(|last| last.open.id.clone());
            let open = page.into_iter().map(|listed| listed.open);
            let is_doubt = |open: &OpenAttempt| matches!(open.row.state, State::InDoubt { .. });
            let open = open.filter(|open| is_doubt(open) && self.is_of(named, open));
            let mut attempts: Vec<Attempt> = Vec::new();
            for open in open {
                match open.row.origin == self.origin {
                    true if open.row.recovery != recovery => attempts.push(open.attempt()),
                    true => change.same += 1,
                    false => change.elsewhere += 1,
                }
            }
            change.changed += match dry_run || attempts.is_empty() {
                true => attempts.len() as u64,
                false => self.store().change_rule(&attempts, recovery, by).await.map_err(Refusal::Store)?,
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

    /// True if a listed attempt is of this route by its path. Where several routes take it and end
    /// doubts differently, the name at its claim decides.
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

    fn doubt(key: &str, owner: &str, origin: &str) -> DoubtStatus {
        let text = str::to_owned;
        DoubtStatus {
            tenant: text("acme"),
            key: text(key),
            owner: Some(text(owner)),
            origin: text(origin),
            ..DoubtStatus::default()
        }
    }

    fn page(of: &str, keys: &[(&str, &str)], more: bool) -> (RegionName, Doubts) {
        let doubts = keys.iter().map(|(key, owner)| doubt(key, owner, of)).collect();
        let doubts = Doubts { region: of.to_owned(), doubts, more, next: None };
        (RegionName::parse(of).unwrap(), doubts)
    }

    fn shown(pages: Vec<(RegionName, Doubts)>, after: &str, most: u32) -> (Vec<String>, Option<String>) {
        let after = KeyId::new(Tenant::parse("acme").unwrap(), Key::parse(after).unwrap());
        let (doubts, next) = merged(pages, Some(&after), most);
        (doubts.into_iter().map(|doubt| format!("{} of {}", doubt.key, doubt.origin)).collect(), next)
    }

    #[test]
    fn each_key_is_shown_once_as_its_owner_has_it() {
        for turned in [false, true] {
            let mut pages =
                vec![page("eu", &[("b", "us"), ("c", "eu")], false), page("us", &[("b", "us")], false)];
            if turned {
                pages.reverse();
            }
            let (keys, next) = shown(pages, "a", 9);
            assert_eq!((keys, next), (vec!["b of us".to_owned(), "c of eu".to_owned()], None));
        }
    }

    /// Behind the end of a page that goes on, keys of its region are missing.
    #[test]
    fn no_key_is_passed_over_where_a_region_has_more() {
        let pages = || {
            vec![
                page("eu", &[("b", "eu"), ("d", "eu")], true),
                page("us", &[("c", "us"), ("x", "us")], false),
                page("ap", &[], true),
            ]
        };
        let all = ["b of eu", "c of us", "d of eu"].map(str::to_owned);
        assert_eq!(shown(pages(), "a", 9), (all.to_vec(), Some("acme/d".to_owned())));
        assert_eq!(shown(pages(), "a", 2), (all[..2].to_vec(), Some("acme/c".to_owned())));
        // A region that shows the same keys again and again adds nothing.
        let again = vec![page("eu", &[("b", "eu")], true), page("us", &[("x", "us")], false)];
        assert_eq!(shown(again, "b", 9), (vec!["x of us".to_owned()], None));
    }

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
