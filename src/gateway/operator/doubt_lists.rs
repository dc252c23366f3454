//! The keys in doubt of all regions, as one list in the order of keys: each key once.
//!
//! Each region lists its own attempts, and those that others left under keys that it owns. An
//! operator asks any one region. A region that does not answer is named: its doubts are unknown,
//! and a list without it must not look whole.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;

use super::acts::{DoubtStatus, Doubts};
use super::everywhere::Answers;
use crate::gateway::instance::Gateway;
use crate::ports::Ports;
use crate::ports::peers::Question;
use crate::ports::store::StoreError;
use crate::protocol::key::{Key, KeyId, Tenant};
use crate::protocol::region::RegionName;

/// One page of the list of all regions.
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
    /// One page of the keys in doubt of all regions of the view, after a key.
    ///
    /// # Errors
    /// The own store did not answer, and no other region did.
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

/// The pages of several regions as one: its keys, and the cursor of the next page.
///
/// A key counts only up to the end of the shortest page that goes on: behind it, that region's keys
/// are missing. Of a key on two lists the owner's entry is shown.
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

/// The key of an entry, unless a peer's words are no key.
fn id(doubt: &DoubtStatus) -> Option<KeyId> {
    Some(KeyId::new(Tenant::parse(&doubt.tenant).ok()?, Key::parse(&doubt.key).ok()?))
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
}
