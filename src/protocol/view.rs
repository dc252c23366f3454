//! The view: the agreed ring and the state of every region, numbered by its epoch
//! (docs/protocol.md#the-register-who-decides).
//!
//! The owner of a key is read from a view, and from nothing else. A view is a value: this file must
//! not change one. Only [`super::change`] makes the next view.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Deref;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::digest::{Digest32, digest};
use super::key::{KeyId, Tenant};
use super::lifetime::Retention;
use super::region::{Origin, RegionName};
use super::ring::{Order, Ring};
use super::ring_spec::{RegionSpec, RingSpec};
use super::versions;
use super::written::{As, Seconds, malformed};

mod members;

pub use self::members::{AcceptorId, Member, Release, Retired, Standing};
use self::members::{EscrowEntry, MemberEntry, RetiredEntry, Voter};

/// The longest lease that a configuration may ask for.
pub const LONGEST_LEASE: Duration = Duration::from_secs(600);

/// Routes under escrow, each with the digest of its meaning in its proposer's files.
pub type Escrowed = BTreeMap<Arc<str>, Digest32>;

/// The agreed ring and the state of every region: a content, and what follows from it.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(try_from = "Content", into = "Content")]
pub struct View {
    pub(super) content: Content,
    derived: Derived,
}

/// Values that follow from a view, computed at first use, as they are asked for often. A copy
/// begins without them, as it is made to become another view.
#[derive(Debug, Default)]
struct Derived {
    whole: OnceLock<Digest32>,
    placement: OnceLock<Digest32>,
    shares: OnceLock<BTreeMap<RegionName, u32>>,
}

impl Clone for Derived {
    fn clone(&self) -> Self {
        Self::default()
    }
}

/// Acceptors, by the names of their regions and witnesses.
pub type Voters = BTreeMap<RegionName, AcceptorId>;

/// The whole content of a view: agreed, stored and sent.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Content {
    /// Its number.
    pub epoch: u64,
    /// The version of the peer protocol that all processes use.
    pub protocol: u16,
    /// Placement.
    #[serde(with = "As::<RingSpec>")]
    pub ring: Arc<Ring>,
    /// Routes whose claims are lodged with the next serving region before anything is sent
    /// (docs/protocol.md#rule-38).
    #[serde(with = "As::<Vec<EscrowEntry>>")]
    pub escrow: Escrowed,
    /// The acceptors whose majority decides, by name: regions' and witnesses'.
    #[serde(with = "As::<Vec<Voter>>")]
    pub voters: Voters,
    /// The voters of the view before: a majority of theirs had to agree to this view, too.
    #[serde(with = "As::<Vec<Voter>>")]
    pub voters_before: Voters,
    /// Every region of the ring, and those that left it while rows of theirs live.
    #[serde(with = "As::<Vec<MemberEntry>>")]
    pub members: BTreeMap<RegionName, Member>,
    /// Origins of stores that were replaced.
    #[serde(with = "As::<Vec<RetiredEntry>>")]
    pub retired: BTreeMap<Origin, Retired>,
    /// The longest lease that was ever agreed on: no grant is longer, and a new voter is silent for
    /// as long. It never shrinks, as grants of the views before may still run
    /// (docs/protocol.md#rule-17).
    #[serde(with = "Seconds")]
    pub longest_lease: Duration,
    /// The longest life that a key may be promised, tombstone included: no claim promises more, and
    /// a lost region is a risk for as long. It never shrinks, as keys of the views before may still
    /// be remembered (docs/protocol.md#rule-32).
    pub longest_life: Retention,
}

impl Deref for View {
    type Target = Content;

    fn deref(&self) -> &Content {
        &self.content
    }
}

impl From<View> for Content {
    fn from(view: View) -> Self {
        view.content
    }
}

impl TryFrom<Content> for View {
    type Error = serde::de::value::Error;

    fn try_from(content: Content) -> Result<Self, Self::Error> {
        if content.protocol > versions::NEXT {
            return Err(malformed("a view of a newer protocol version"));
        }
        if content.longest_lease > LONGEST_LEASE {
            return Err(malformed("a lease"));
        }
        Ok(Self::from_content(content))
    }
}

impl View {
    /// A view as agreed, stored or sent.
    pub fn from_content(content: Content) -> Self {
        Self { content, derived: Derived::default() }
    }

    /// The whole content.
    pub fn content(&self) -> Content {
        self.content.clone()
    }

    /// The view of a deployment whose register was not founded: epoch 0, nobody serves, nobody
    /// votes. It is never agreed on.
    pub fn unfounded(ring: Arc<Ring>) -> Self {
        Self::at_first(0, ring, Escrowed::new(), BTreeMap::new(), Standing::Sealed { drained: false })
    }

    /// The first view of a deployment: every region of the ring serves with its first generation.
    /// Only the founding may propose it, while all stores are empty: then no region has anything to
    /// catch up with (docs/protocol.md#rule-19).
    ///
    /// It names the newest version of this program, and allows the longest leases and lives that
    /// there are. The founder replaces these by what all regions speak, and by its own.
    pub fn founding(epoch: u64, ring: Arc<Ring>, escrow: Escrowed, voters: Voters) -> Self {
        Self::at_first(epoch, ring, escrow, voters, Standing::Serving)
    }

    fn at_first(epoch: u64, ring: Arc<Ring>, escrow: Escrowed, voters: Voters, standing: Standing) -> Self {
        // An edge owns nothing.
        let stands = |weight: u32| if weight == 0 { Standing::Sealed { drained: true } } else { standing };
        let member = |region: &RegionSpec| (region.name.clone(), Member::new(1, stands(region.weight)));
        Self::from_content(Content {
            epoch,
            // Before the founding, processes of all versions must see the same view.
            protocol: if epoch == 0 { versions::OLDEST } else { versions::NEWEST },
            members: ring.regions().iter().map(member).collect(),
            ring,
            escrow,
            voters_before: voters.clone(),
            voters,
            retired: BTreeMap::new(),
            longest_lease: LONGEST_LEASE,
            longest_life: Retention::Never,
        })
    }

    /// The view's number; 0 before the register was founded.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// The version of the peer protocol that all processes use, or serve nothing.
    pub fn protocol(&self) -> u16 {
        self.protocol
    }

    /// The ring of this view.
    pub fn ring(&self) -> &Arc<Ring> {
        &self.ring
    }

    /// Routes whose claims are lodged, with the meaning of each.
    pub fn escrow(&self) -> &Escrowed {
        &self.escrow
    }

    /// The acceptors whose majority decides.
    pub fn voters(&self) -> &Voters {
        &self.voters
    }

    /// All regions, by name.
    pub fn members(&self) -> &BTreeMap<RegionName, Member> {
        &self.members
    }

    /// True if a key may be promised this life.
    pub fn allows(&self, life: Retention) -> bool {
        life <= self.longest_life
    }

    /// True if nothing comes from that store any more: it was replaced, or its region left the
    /// ring. A region that lacks rows of it gets them from others.
    pub fn is_gone(&self, origin: &Origin) -> bool {
        self.retired.contains_key(origin) || self.ring.weight(&origin.region).is_none()
    }

    /// The standing of one region.
    pub fn standing(&self, region: &RegionName) -> Option<Standing> {
        self.members.get(region).map(|member| member.standing)
    }

    /// True if that region may own arcs.
    pub fn serves(&self, region: &RegionName) -> bool {
        self.standing(region).is_some_and(Standing::is_serving)
    }

    /// The regions that may own arcs.
    pub fn serving(&self) -> impl Iterator<Item = &RegionName> {
        self.members.iter().filter(|(_, member)| member.standing.is_serving()).map(|(name, _)| name)
    }

    /// The regions that are lost, each with the epoch that declared it.
    pub fn lost(&self) -> impl Iterator<Item = (&RegionName, u64)> {
        self.members.iter().filter_map(|(name, member)| match member.standing {
            Standing::Lost { at, gap: _ } => Some((name, at)),
            Standing::Serving | Standing::Sealed { .. } => None,
        })
    }

    /// The stores whose last rows may be missing elsewhere: those of lost regions, and those that
    /// were replaced after a loss. Each with the epoch that declared it lost.
    pub fn losses(&self) -> impl Iterator<Item = (Origin, u64)> {
        let members = self.lost().filter_map(|(region, at)| Some((self.origin(region)?, at)));
        members
            .chain(self.retired.iter().filter_map(|(origin, retired)| Some((origin.clone(), retired.lost?))))
    }

    /// The origin under which a region writes its rows.
    pub fn origin(&self, region: &RegionName) -> Option<Origin> {
        let member = self.members.get(region)?;
        Some(Origin { region: region.clone(), generation: member.generation })
    }

    /// True if this is the present store of its region.
    pub fn is_present(&self, origin: &Origin) -> bool {
        self.members.get(&origin.region).is_some_and(|member| member.generation == origin.generation)
    }

    /// The first serving region of the key's order: the home normally. `None` if none serves.
    pub fn owner(&self, id: &KeyId) -> Option<&RegionName> {
        self.first_serving(self.ring.order(id))
    }

    /// The next serving region after the owner, if any: claims are lodged there.
    pub fn target(&self, id: &KeyId) -> Option<&RegionName> {
        self.ring.order(id).names().filter(|name| self.serves(name)).nth(1)
    }

    fn first_serving<'a>(&self, order: Order<'a>) -> Option<&'a RegionName> {
        order.names().find(|name| self.serves(name))
    }

    /// Number of arcs that each serving region owns.
    pub fn shares(&self) -> &BTreeMap<RegionName, u32> {
        self.derived.shares.get_or_init(|| {
            let serving = self.serving_by_index();
            let mut counts = vec![0_u32; serving.len()];
            for owner in self.ring.arc_orders().filter_map(|order| first_of(order, &serving)) {
                counts[owner] += 1;
            }
            let count = |name| self.ring.index(name).map_or(0, |index| counts[index]);
            self.serving().map(|name| (name.clone(), count(name))).collect()
        })
    }

    /// The serving regions, by position in [`Ring::regions`]: look-ups by name would cost too much.
    fn serving_by_index(&self) -> Vec<bool> {
        self.ring.regions().iter().map(|region| self.serves(&region.name)).collect()
    }

    /// True if some key of `region` is not its own any more under `next`. Judged per key, as pins
    /// move keys without their arc (docs/protocol.md#rule-2).
    pub fn loses(&self, next: &View, region: &RegionName) -> bool {
        let arcs = || {
            let (before, after) = (self.serving_by_index(), next.serving_by_index());
            let (had, has) = (self.ring.index(region), next.ring.index(region));
            let mut pairs = self.ring.arc_orders().zip(next.ring.arc_orders());
            had.is_some()
                && pairs.any(|(own, other)| {
                    first_of(own, &before) == had && (has.is_none() || first_of(other, &after) != has)
                })
        };
        // If no new region serves, each region that still serves keeps its keys. Acceptors ask this
        // for every grant: most changes are seen to be harmless without comparing 65,536 arcs.
        let alike = self.ring.digest() == next.ring.digest()
            && next.serves(region)
            && next.serving().all(|name| self.serves(name));
        let only = BTreeSet::from([region]);
        let mut pinned = self.ring.pinned().chain(next.ring.pinned()).map(|(tenant, _)| tenant);
        let mut pins = || pinned.any(|of| self.owners_of(of).contains(region) && next.owners_of(of) != only);
        !alike && self.serves(region) && (arcs() || pins())
    }

    /// The regions that may own some key of this tenant. Without a pin and with an arc for each
    /// key, every serving region may: each may own an arc.
    fn owners_of(&self, tenant: &Tenant) -> BTreeSet<&RegionName> {
        let order = match (self.ring.pin_of(tenant), self.ring.arc_of_tenant(tenant)) {
            (Some(order), _) => order,
            (None, Some(arc)) => self.ring.arc_order(arc),
            (None, None) => return self.serving().collect(),
        };
        self.first_serving(order).into_iter().collect()
    }

    /// The regions that lose keys if `next` takes this view's place.
    pub fn losers<'a>(&'a self, next: &'a View) -> impl Iterator<Item = &'a RegionName> {
        self.members.keys().filter(|region| self.loses(next, region))
    }

    /// The arcs that `next` moves, counted by old and new owner. `None` is no owner.
    pub fn moves(&self, next: &View) -> BTreeMap<(Option<RegionName>, Option<RegionName>), u32> {
        let (before, after) = (self.serving_by_index(), next.serving_by_index());
        let mut counts: BTreeMap<(Option<usize>, Option<usize>), u32> = BTreeMap::new();
        for (own, other) in self.ring.arc_orders().zip(next.ring.arc_orders()) {
            *counts.entry((first_of(own, &before), first_of(other, &after))).or_default() += 1;
        }
        let name = |view: &View, index: usize| view.ring.regions()[index].name.clone();
        let named = counts.into_iter().map(|((from, to), arcs)| {
            ((from.map(|index| name(self, index)), to.map(|index| name(next, index))), arcs)
        });
        named.filter(|((from, to), _)| from != to).collect()
    }

    /// A digest of everything that decides an owner, without epoch and marks: for releases.
    pub fn placement(&self) -> Digest32 {
        *self.derived.placement.get_or_init(|| {
            let mut parts = vec![self.ring.digest().as_bytes().to_vec()];
            for (name, member) in &self.members {
                let standing = match member.standing {
                    Standing::Serving => "serving".to_owned(),
                    Standing::Sealed { drained } => format!("sealed {drained}"),
                    Standing::Lost { at, gap } => format!("lost {at} {gap}"),
                };
                parts.push(format!("{name}#{} {standing}", member.generation).into_bytes());
            }
            parts.push(b"escrow".to_vec());
            for (route, meaning) in &self.escrow {
                parts.push(route.as_bytes().to_vec());
                parts.push(format!("means {meaning}").into_bytes());
            }
            slices("onceway/placement/1", &parts)
        })
    }

    /// A digest of the whole content: two views are the same exactly if their digests are equal.
    pub fn digest(&self) -> Digest32 {
        *self.derived.whole.get_or_init(|| {
            let mut parts = vec![self.epoch.to_be_bytes().to_vec(), self.placement().as_bytes().to_vec()];
            let voter = |(name, id): (&RegionName, &AcceptorId)| format!("{name} {:032x}", id.0).into_bytes();
            parts.extend(self.voters.iter().map(voter));
            parts.push(b"before".to_vec());
            parts.extend(self.voters_before.iter().map(voter));
            parts.push(b"marks".to_vec());
            for (name, member) in &self.members {
                let release = member.release.map(|release| format!("{} {}", release.base, release.target));
                parts.push(format!("{name} {} {}", member.mark, release.unwrap_or_default()).into_bytes());
            }
            parts.push(b"retired".to_vec());
            for (origin, Retired { mark, lost }) in &self.retired {
                let lost = lost.map(|at| format!(" lost {at}")).unwrap_or_default();
                parts.push(format!("{origin} {mark}{lost}").into_bytes());
            }
            parts.push(format!("protocol {}", self.protocol).into_bytes());
            parts.push(format!("longest lease {}", self.longest_lease.as_nanos()).into_bytes());
            parts.push(format!("longest life {:?}", self.longest_life).into_bytes());
            slices("onceway/view/5", &parts)
        })
    }
}

impl PartialEq for View {
    fn eq(&self, other: &Self) -> bool {
        self.epoch == other.epoch && self.digest() == other.digest()
    }
}

impl Eq for View {}

/// The first region of an order that serves, by position in its ring.
fn first_of(order: Order<'_>, serving: &[bool]) -> Option<usize> {
    order.indexes().iter().map(|index| usize::from(*index)).find(|index| serving[*index])
}

fn slices(domain: &str, parts: &[Vec<u8>]) -> Digest32 {
    let parts: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
    digest(domain, &parts)
}

#[cfg(test)]
mod tests;
