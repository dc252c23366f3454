//! Names and spans in a scenario: regions and routes as the shared files have them.
//!
//! The parts of a scenario read their values with it.

use std::time::Duration;

use onceway::config::reader::{self, Section};
use onceway::config::shared::Shared;
use onceway::protocol::region::RegionName;
use toml::de::DeValue;

use crate::words::joined;

/// The shared files, as far as they could be read, which the rest of a scenario refers to.
pub(super) struct Known<'a>(pub(super) Option<&'a Shared>);

impl Known<'_> {
    /// Reads the name of a region that the ring file has.
    pub(super) fn region(&self, value: &DeValue<'_>) -> Result<RegionName, String> {
        let text = reader::text(value)?;
        let name = RegionName::parse(&text).map_err(|error| error.to_string())?;
        let regions = self.0.map(|shared| shared.ring.regions().iter().map(|region| &region.name));
        match regions {
            Some(regions) if regions.clone().all(|known| *known != name) => {
                let known = joined(regions, ", ");
                Err(format!("there is no region {text:?} in the ring file: it has {known}"))
            }
            Some(_) | None => Ok(name),
        }
    }
}

/// Reads a span between milliseconds and seconds; the default is in milliseconds.
pub(super) fn span(
    section: &Section<'_>,
    key: &'static str,
    least_ms: u64,
    most_s: u64,
    default_ms: u64,
) -> Duration {
    let (least, most) = (Duration::from_millis(least_ms), Duration::from_secs(most_s));
    section
        .optional(key, |value| reader::time(value, least, most))
        .unwrap_or(Duration::from_millis(default_ms))
}
