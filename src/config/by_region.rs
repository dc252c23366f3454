//! Tables whose keys are names of regions: `[peer.addresses]`, `[upstream.elsewhere]`,
//! `[provision.publishers]`.
//!
//! `across` checks which regions such a table must have. This file must not know any value.

use std::collections::BTreeMap;

use toml::de::DeValue;

use super::reader::{At, Located, Section};
use crate::protocol::region::RegionName;

/// Names of the tables by region in messages.
pub(super) const ADDRESSES: &str = "[peer.addresses]";
pub(super) const ELSEWHERE: &str = "[upstream.elsewhere]";
pub(super) const PUBLISHERS: &str = "[provision.publishers]";

/// A table with a value for each region.
#[derive(Clone, Debug)]
pub(super) struct ByRegion<T> {
    /// Place of the table, or the place where it should be.
    pub at: At,
    pub entries: BTreeMap<RegionName, Located<T>>,
    /// Keys that could not be read. Their problems are reported already.
    pub broken: Vec<String>,
}

impl<T> ByRegion<T> {
    /// True if the table mentions this region, with a valid value or not.
    pub fn mentions(&self, region: &RegionName) -> bool {
        self.entries.contains_key(region) || self.broken.iter().any(|key| key == region.as_str())
    }

    /// The entries without their places.
    pub fn values(self) -> BTreeMap<RegionName, T> {
        self.entries.into_iter().map(|(name, located)| (name, located.value)).collect()
    }
}

/// Reads a table by region.
pub(super) fn by_region<T>(
    section: Option<Section<'_>>,
    parent: &At,
    name: &str,
    read: impl Fn(&DeValue<'_>) -> Result<T, String>,
) -> ByRegion<T> {
    let Some(mut section) = section else {
        return ByRegion { at: parent.clone(), entries: BTreeMap::new(), broken: Vec::new() };
    };
    section.rename(name.to_owned());
    let one = |key: &str, value: &DeValue<'_>| {
        let region = RegionName::parse(key).map_err(|error| error.to_string())?;
        Ok((region, read(value)?))
    };
    let entries = section.entries(one).into_iter();
    let entries: BTreeMap<RegionName, Located<T>> =
        entries.map(|Located { at, value: (region, value) }| (region, Located { at, value })).collect();
    let mut broken = section.keys();
    broken.retain(|key| !entries.keys().any(|region| region.as_str() == key));
    ByRegion { at: section.at().clone(), entries, broken }
}
