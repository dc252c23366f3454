//! The ring file of a deployment, as far as drills go by it: the ring, and the settings in the
//! bounds of a takeover. [`super::files`] wrote all of it: no default is known twice.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use onceway_protocol::ring::Ring;
use onceway_protocol::ring_spec::{PlaceBy, RegionSpec, RingSpec};
use serde::{Deserialize, Deserializer};

#[derive(Deserialize)]
pub struct RingFile {
    seed: u64,
    place_by: PlaceBy,
    #[serde(rename = "region")]
    regions: Vec<RegionSpec>,
    pub clock: Clock,
    pub failover: Failover,
}

#[derive(Deserialize)]
pub struct Clock {
    pub drift_ppm: u32,
    #[serde(deserialize_with = "span")]
    pub margin: Duration,
}

#[derive(Deserialize)]
pub struct Failover {
    #[serde(deserialize_with = "span")]
    pub lease: Duration,
    pub multiple: f64,
    #[serde(deserialize_with = "span")]
    pub floor: Duration,
}

impl RingFile {
    pub fn read(dir: &Path) -> Result<Self> {
        let path = dir.join("ring.toml");
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        toml::from_str(&text).with_context(|| format!("{} lacks what a drill goes by", path.display()))
    }

    /// Builds the ring, which takes milliseconds for each region.
    pub fn ring(&self) -> Result<Arc<Ring>> {
        let (seed, place_by, regions) = (self.seed, self.place_by, self.regions.clone());
        Ok(Arc::new(Ring::build(&RingSpec { seed, place_by, regions, pins: Vec::new() })?))
    }
}

fn span<'de, D: Deserializer<'de>>(text: D) -> Result<Duration, D::Error> {
    humantime::parse_duration(&String::deserialize(text)?).map_err(serde::de::Error::custom)
}

#[cfg(test)]
mod tests {
    use onceway_protocol::region::RegionName;

    use super::*;
    use crate::{drill::soak, files};

    #[test]
    fn the_drills_ring_files_have_the_expected_settings() {
        let names = [RegionName::parse("us").unwrap(), RegionName::parse("eu").unwrap()];
        for (failover, lease) in [(files::FAILOVER, 3), (soak::FAILOVER, 10)] {
            let folder = tempfile::tempdir().unwrap();
            files::write(folder.path(), "ring.toml", &files::ring(&names, &[1, 2], failover)).unwrap();
            let file = RingFile::read(folder.path()).unwrap();
            let weight = file.ring().unwrap().weight(&names[1]);
            assert_eq!((file.failover.lease.as_secs(), weight), (lease, Some(2)));
        }
    }
}
