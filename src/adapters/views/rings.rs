//! Rings on the wire and on disk: the spec of a ring, and the built rings, as building takes some
//! time.
//!
//! [`super`] has the documents of views, which hold a ring each. This file must not keep more rings
//! than a deployment uses.

use std::sync::{Arc, Mutex, PoisonError};

use serde::{Deserialize, Serialize};

use super::{Malformed, region};
use crate::protocol::key::Tenant;
use crate::protocol::region::RegionName;
use crate::protocol::ring::{Pin, PlaceBy, RegionSpec, Ring, RingSpec};

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RingDoc {
    pub(super) seed: u64,
    place_by: PlaceByDoc,
    pub(super) regions: Vec<WeightDoc>,
    pins: Vec<PinDoc>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum PlaceByDoc {
    Tenant,
    Key,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WeightDoc {
    name: String,
    weight: u32,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct PinDoc {
    tenant: String,
    regions: Vec<String>,
}

/// Most built rings that are kept. A deployment uses two or three at a time: before a change, after
/// it, and a proposal.
pub(super) const KEPT: usize = 8;

/// Built rings with their specs, the one used last at the end.
pub(super) static RINGS: Mutex<Vec<(RingSpec, Arc<Ring>)>> = Mutex::new(Vec::new());

/// The ring of a spec. Builds it if it is not known.
pub(super) fn ring_of(doc: RingDoc) -> Result<Arc<Ring>, Malformed> {
    let spec = spec_of(doc)?;
    // No code here leaves the list half changed, so a panic elsewhere does not spoil it.
    let mut rings = RINGS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(at) = rings.iter().position(|(known, _)| *known == spec) {
        let known = rings.remove(at);
        let ring = known.1.clone();
        rings.push(known);
        return Ok(ring);
    }
    let built = Arc::new(Ring::build(&spec).map_err(|_| Malformed("no ring can be built"))?);
    // The same ring with its lists in another order.
    let same = rings.iter().find(|(_, ring)| ring.digest() == built.digest());
    let ring = same.map_or(built, |(_, ring)| ring.clone());
    if rings.len() >= KEPT {
        rings.remove(0);
    }
    rings.push((spec, ring.clone()));
    Ok(ring)
}

fn spec_of(doc: RingDoc) -> Result<RingSpec, Malformed> {
    let RingDoc { seed, place_by, regions, pins } = doc;
    let weights = regions
        .iter()
        .map(|WeightDoc { name, weight }| Ok(RegionSpec { name: region(name)?, weight: *weight }));
    let pins = pins.iter().map(|PinDoc { tenant, regions }| {
        Ok(Pin {
            tenant: Tenant::parse(tenant).map_err(|_| Malformed("a tenant"))?,
            regions: regions.iter().map(|name| region(name)).collect::<Result<_, _>>()?,
        })
    });
    Ok(RingSpec {
        seed,
        place_by: match place_by {
            PlaceByDoc::Tenant => PlaceBy::Tenant,
            PlaceByDoc::Key => PlaceBy::Key,
        },
        regions: weights.collect::<Result<_, _>>()?,
        pins: pins.collect::<Result<_, _>>()?,
    })
}

pub(super) fn ring_doc(ring: &Ring) -> RingDoc {
    let RingSpec { seed, place_by, regions, pins } = ring.spec();
    RingDoc {
        seed,
        place_by: match place_by {
            PlaceBy::Tenant => PlaceByDoc::Tenant,
            PlaceBy::Key => PlaceByDoc::Key,
        },
        regions: regions
            .into_iter()
            .map(|RegionSpec { name, weight }| WeightDoc { name: name.to_string(), weight })
            .collect(),
        pins: pins
            .into_iter()
            .map(|Pin { tenant, regions }| PinDoc {
                tenant: tenant.as_str().to_owned(),
                regions: regions.iter().map(RegionName::to_string).collect(),
            })
            .collect(),
    }
}
