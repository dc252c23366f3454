//! Rings as they are written: by their spec. Building takes some time, so a few built rings are
//! kept, and equal rings are one [`Arc`].

use std::sync::{Arc, Mutex, PoisonError};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::super::ring_spec::RingSpec;
use super::super::written::malformed;
use super::Ring;

/// Most built rings that are kept. A deployment uses two or three at a time.
const KEPT: usize = 8;

/// Built rings with their specs, the one used last at the end.
static RINGS: Mutex<Vec<(RingSpec, Arc<Ring>)>> = Mutex::new(Vec::new());

pub fn serialize<S: Serializer>(ring: &Ring, out: S) -> Result<S::Ok, S::Error> {
    ring.spec().serialize(out)
}

pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Arc<Ring>, D::Error> {
    known(RingSpec::deserialize(from)?).ok_or_else(|| malformed("a ring"))
}

/// The ring of a spec. Builds it if it is not known; `None` if none can be built.
fn known(spec: RingSpec) -> Option<Arc<Ring>> {
    // No code here leaves the list half changed, so a panic elsewhere does not spoil it.
    let mut rings = RINGS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(at) = rings.iter().position(|(known, _)| *known == spec) {
        let known = rings.remove(at);
        let ring = known.1.clone();
        rings.push(known);
        return Some(ring);
    }
    let built = Arc::new(Ring::build(&spec).ok()?);
    // The same ring with its lists in another order.
    let same = rings.iter().find(|(_, ring)| ring.digest() == built.digest());
    let ring = same.map_or(built, |(_, ring)| ring.clone());
    if rings.len() >= KEPT {
        rings.remove(0);
    }
    rings.push((spec, ring.clone()));
    Some(ring)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::examples::name;
    use crate::ring_spec::{PlaceBy, RegionSpec};

    #[test]
    fn equal_rings_are_one_and_few_are_kept() {
        let regions = ["eu-west", "us"].map(|region| RegionSpec { name: name(region), weight: 1 }).to_vec();
        let spec =
            |seed| RingSpec { seed, place_by: PlaceBy::Key, regions: regions.clone(), pins: Vec::new() };
        let ring = known(spec(7)).unwrap();
        assert!(Arc::ptr_eq(&ring, &known(spec(7)).unwrap()));
        let mut turned = spec(7);
        turned.regions.reverse();
        assert!(Arc::ptr_eq(&ring, &known(turned).unwrap()), "the order of a list makes no other ring");
        (100..100 + KEPT as u64 + 2).for_each(|seed| assert!(known(spec(seed)).is_some()));
        assert!(RINGS.lock().unwrap().len() <= KEPT, "the rings that are kept grow without bound");
    }
}
