//! The ring: the regions of each key, in order of preference (docs/protocol.md#rule-2).
//!
//! ```text
//!  tenant (, key)            arc 0   | eu-1  us-1  ap-1     the table: one row per arc,
//!        |                   arc 1   | us-1  ap-1  eu-1     65,536 rows of all regions with
//!   xxh3_64(seed)            ...     |                      weight > 0, by `placement_score`
//!        |  top 16 bits      arc n   | ap-1  eu-1  us-1  -> Order: home, first successor, ...
//!        +------------------>        |
//!   pinned tenant?  ------------------------------------> Order: the pin's regions and no others
//! ```
//!
//! The same [`RingSpec`] makes the same ring on every node, bit for bit, whatever the order of its
//! lists. `view` picks the owner from an [`Order`].

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::digest::{Digest32, digest};
use super::key::{KeyId, Tenant};
use super::placement_score::Score;
use super::region::RegionName;
use super::ring_spec::{Pin, PlaceBy, RegionSpec, RingSpec, problems};
use super::written::Form;

/// Number of arcs of a ring.
pub const ARCS: u32 = 1 << 16;

/// All problems of a ring's spec, or of a comparison of two rings; at least one line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", .problems.join("; "))]
pub struct RingError {
    /// One line per problem: the fault and the remedy.
    pub problems: Vec<String>,
}

/// One of the 65,536 equal parts of the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Arc16(pub u16);

impl fmt::Display for Arc16 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// Regions in order of preference: the home, then the successors. Never empty.
#[derive(Clone, Copy)]
pub struct Order<'a> {
    regions: &'a [RegionSpec],
    indexes: &'a [u8],
}

impl<'a> Order<'a> {
    /// The first region's name.
    pub fn home(&self) -> &'a RegionName {
        &self.regions[usize::from(self.indexes[0])].name
    }

    /// The names, home first.
    pub fn names(&self) -> impl ExactSizeIterator<Item = &'a RegionName> + use<'a> {
        let regions = self.regions;
        self.indexes.iter().map(move |&index| &regions[usize::from(index)].name)
    }

    /// The names as positions in [`Ring::regions`].
    pub fn indexes(&self) -> &'a [u8] {
        self.indexes
    }
}

impl fmt::Debug for Order<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.names()).finish()
    }
}

/// The moves that a change of the ring would cause.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Moves {
    /// (from, to) → number of arcs that change their home so; pairs without moves are absent.
    pub arcs: BTreeMap<(RegionName, RegionName), u32>,
    /// Tenants whose pin is added, removed or altered, in order. They move whatever their arc does.
    pub pins: Vec<Tenant>,
}

/// A ring. Immutable; 64 KiB per region with a weight above 0.
pub struct Ring {
    seed: u64,
    place_by: PlaceBy,
    /// Sorted by name, so that an index means the same for every order of the spec.
    regions: Box<[RegionSpec]>,
    /// Number of regions with a weight above 0 = the length of a row.
    width: usize,
    /// Row by row, each arc's region indexes in order of preference. Made when first asked for:
    /// many commands read a ring and place nothing.
    table: OnceLock<Box<[u8]>>,
    pins: BTreeMap<Tenant, Box<[u8]>>,
    digest: Digest32,
}

impl Ring {
    /// Checks the spec. The first question for an order makes the table: milliseconds per region.
    pub fn build(spec: &RingSpec) -> Result<Self, RingError> {
        let problems = problems(spec);
        if !problems.is_empty() {
            return Err(RingError { problems });
        }
        let mut regions: Box<[RegionSpec]> = spec.regions.clone().into();
        regions.sort_by(|a, b| a.name.cmp(&b.name));
        let index_of =
            |name: &RegionName| regions.iter().zip(0u8..).find(|(r, _)| r.name == *name).map(|(_, i)| i);
        let pins: BTreeMap<Tenant, Box<[u8]>> = spec
            .pins
            .iter()
            .map(|pin| (pin.tenant.clone(), pin.regions.iter().filter_map(index_of).collect()))
            .collect();
        let width = regions.iter().filter(|region| region.weight > 0).count();
        let digest = spec_digest(spec.seed, spec.place_by, &regions, &pins);
        let RingSpec { seed, place_by, .. } = *spec;
        Ok(Self { seed, place_by, regions, width, table: OnceLock::new(), pins, digest })
    }

    /// The key's arc: the top 16 bits of xxh3_64 under the seed, over the tenant; or over the key,
    /// under the tenant's hash as the seed (a copy of both would cost more).
    pub fn arc(&self, id: &KeyId) -> Arc16 {
        self.arc_of_tenant(id.tenant()).unwrap_or_else(|| {
            let seed = xxh3_64_with_seed(id.tenant().as_bytes(), self.seed);
            top_bits(xxh3_64_with_seed(id.key().as_bytes(), seed))
        })
    }

    /// The key's regions: its tenant's pin, which admits no others, or else its arc's order.
    pub fn order(&self, id: &KeyId) -> Order<'_> {
        self.pin_of(id.tenant()).unwrap_or_else(|| self.arc_order(self.arc(id)))
    }

    /// The order of an arc's regions, for all its keys but those of pinned tenants.
    pub fn arc_order(&self, arc: Arc16) -> Order<'_> {
        let start = usize::from(arc.0) * self.width;
        Order { regions: &self.regions, indexes: &self.table()[start..start + self.width] }
    }

    /// All regions, those of weight 0 too, sorted by name.
    pub fn regions(&self) -> &[RegionSpec] {
        &self.regions
    }

    /// The position of a region in [`Ring::regions`]; `None` if the ring does not have it.
    pub fn index(&self, region: &RegionName) -> Option<usize> {
        self.regions.iter().position(|spec| spec.name == *region)
    }

    /// The weight of a region; `None` if the ring does not have it.
    pub fn weight(&self, region: &RegionName) -> Option<u32> {
        self.index(region).map(|index| self.regions[index].weight)
    }

    /// The part of the arcs (0 to 1) that has this region as its home. Counts all arcs: for people.
    pub fn share(&self, region: &RegionName) -> f64 {
        let homes = self.arc_orders().filter(|order| order.home() == region).count();
        homes as f64 / f64::from(ARCS)
    }

    /// The spec from which this ring was built, its lists in order of name.
    pub fn spec(&self) -> RingSpec {
        let pins = self
            .pinned()
            .map(|(tenant, order)| Pin { tenant: tenant.clone(), regions: order.names().cloned().collect() });
        let Self { seed, place_by, ref regions, .. } = *self;
        RingSpec { seed, place_by, regions: regions.to_vec(), pins: pins.collect() }
    }

    /// The part of a key that places it.
    pub fn place_by(&self) -> PlaceBy {
        self.place_by
    }

    /// True if arcs of this ring are arcs of the other: seed and `place_by` are fixed at bootstrap,
    /// or keys would move without their arc (docs/protocol.md#rule-2).
    pub fn places_like(&self, other: &Ring) -> bool {
        self.seed == other.seed && self.place_by == other.place_by
    }

    /// All pinned tenants with their regions.
    pub fn pinned(&self) -> impl Iterator<Item = (&Tenant, Order<'_>)> {
        self.pins.iter().map(|(tenant, indexes)| (tenant, Order { regions: &self.regions, indexes }))
    }

    /// The regions of a pinned tenant.
    pub fn pin_of(&self, tenant: &Tenant) -> Option<Order<'_>> {
        self.pins.get(tenant).map(|indexes| Order { regions: &self.regions, indexes })
    }

    /// The orders of all arcs, in order.
    pub fn arc_orders(&self) -> impl Iterator<Item = Order<'_>> {
        self.table().chunks_exact(self.width).map(|indexes| Order { regions: &self.regions, indexes })
    }

    /// The arc of all keys of a tenant; `None` where each key has its own.
    pub fn arc_of_tenant(&self, tenant: &Tenant) -> Option<Arc16> {
        match self.place_by {
            PlaceBy::Tenant => Some(top_bits(xxh3_64_with_seed(tenant.as_bytes(), self.seed))),
            PlaceBy::Key => None,
        }
    }

    /// A digest over everything in the spec; equal on two nodes exactly if their rings are.
    pub fn digest(&self) -> Digest32 {
        self.digest
    }

    /// The moves if `other` took this ring's place. Arcs of rings of another seed or `place_by` say
    /// nothing about each other.
    pub fn moves(&self, other: &Ring) -> Result<Moves, RingError> {
        let seeds = "the rings' seeds differ: keep the seed, it is fixed at bootstrap";
        let rules = "the rings' place_by differ: keep it, it is fixed at bootstrap";
        let differ = [(self.seed != other.seed, seeds), (self.place_by != other.place_by, rules)];
        let problems: Vec<_> =
            differ.into_iter().filter(|(is, _)| *is).map(|(_, why)| why.to_owned()).collect();
        if !problems.is_empty() {
            return Err(RingError { problems });
        }
        let mut moves = Moves::default();
        for (from, to) in self.arc_orders().zip(other.arc_orders()) {
            if from.home() != to.home() {
                *moves.arcs.entry((from.home().clone(), to.home().clone())).or_default() += 1;
            }
        }
        let mut tenants: BTreeSet<&Tenant> = self.pins.keys().chain(other.pins.keys()).collect();
        let pin = |ring: &Ring, tenant| Some(ring.pin_of(tenant)?.names().cloned().collect::<Vec<_>>());
        tenants.retain(|tenant| pin(self, tenant) != pin(other, tenant));
        moves.pins = tenants.into_iter().cloned().collect();
        Ok(moves)
    }

    fn table(&self) -> &[u8] {
        self.table.get_or_init(|| table(self.seed, &self.regions, self.width))
    }
}

impl fmt::Debug for Ring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ring")
            .field("place_by", &self.place_by)
            .field("regions", &self.regions)
            .field("pins", &self.pins.len())
            .field("digest", &self.digest)
            .finish_non_exhaustive()
    }
}

fn top_bits(hash: u64) -> Arc16 {
    Arc16((hash >> 48) as u16)
}

/// Ranks the regions with a weight above 0 for each arc; equal scores go by name.
fn table(seed: u64, regions: &[RegionSpec], width: usize) -> Box<[u8]> {
    let mut table = Vec::with_capacity(width << 16);
    let mut row: Vec<(Score, u8)> = Vec::with_capacity(width);
    let mut bytes = [0; 2 + RegionName::MAX_LEN];
    for arc in 0..=u16::MAX {
        bytes[..2].copy_from_slice(&arc.to_be_bytes());
        row.clear();
        for (region, index) in regions.iter().zip(0..).filter(|(region, _)| region.weight > 0) {
            let name = region.name.as_str().as_bytes();
            bytes[2..2 + name.len()].copy_from_slice(name);
            let hash = xxh3_64_with_seed(&bytes[..2 + name.len()], seed);
            row.push((Score::new(hash, region.weight), index));
        }
        row.sort_unstable_by(|(a, i), (b, j)| a.rank(b).then(i.cmp(j)));
        table.extend(row.iter().map(|(_, index)| *index));
    }
    table.into()
}

/// Digests the spec. A length precedes every list, so that the encoding is one-to-one.
fn spec_digest(
    seed: u64,
    place_by: PlaceBy,
    regions: &[RegionSpec],
    pins: &BTreeMap<Tenant, Box<[u8]>>,
) -> Digest32 {
    let place_by = match place_by {
        PlaceBy::Tenant => 0u64,
        PlaceBy::Key => 1,
    };
    let numbers: Vec<[u8; 8]> = [seed, place_by, regions.len() as u64, pins.len() as u64]
        .into_iter()
        .chain(regions.iter().map(|region| u64::from(region.weight)))
        .map(u64::to_be_bytes)
        .collect();
    let mut parts: Vec<&[u8]> = numbers.iter().map(<[u8; 8]>::as_slice).collect();
    parts.extend(regions.iter().map(|region| region.name.as_str().as_bytes()));
    for (tenant, indexes) in pins {
        parts.push(tenant.as_bytes());
        parts.push(indexes);
    }
    digest("onceway/ring/1", &parts)
}

/// Most built rings that are kept. A deployment uses two or three at a time.
const KEPT: usize = 8;

/// Built rings with their specs, the one used last at the end.
static RINGS: Mutex<Vec<(RingSpec, Arc<Ring>)>> = Mutex::new(Vec::new());

/// Rings are written by their spec. Building takes some time, so a few built rings are kept, and
/// equal rings are one [`Arc`].
impl Form<Arc<Ring>> for RingSpec {
    fn of(ring: &Arc<Ring>) -> Self {
        ring.spec()
    }

    fn value(self) -> Result<Arc<Ring>, &'static str> {
        known(self).ok_or("a ring")
    }
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
mod tests;
