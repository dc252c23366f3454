//! The view: the agreed ring and the state of every region, numbered by its epoch.
//!
//! Neighbours: [`super::ring`] (the order of an arc's regions), `gateway` (reads the owner of a key from a view, and from nothing
//! else). At first there is one view, epoch 1, with all regions serving; agreeing on later ones is the register's work. This
//! file must not change a view: a view is a value.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::digest::{Digest32, digest};
use super::key::KeyId;
use super::region::{Origin, RegionName};
use super::ring::Ring;

/// What the view says of one region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// May own arcs.
    Serving,
    /// Complete, owns nothing.
    Sealed,
    /// Owns nothing since that epoch; its last rows may be missing elsewhere.
    Lost {
        /// The epoch that declared it lost.
        at: u64,
    },
}

/// One region in a view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// Generation of its store, and so of its origin: a rebuilt store gets the next one.
    pub generation: u32,
    /// What it may do.
    pub standing: Standing,
}

/// The agreed ring and the state of every region.
#[derive(Clone, Debug)]
pub struct View {
    epoch: u64,
    ring: Arc<Ring>,
    members: BTreeMap<RegionName, Member>,
}

impl View {
    /// A view as agreed. `members` names every region of the ring.
    pub fn new(epoch: u64, ring: Arc<Ring>, members: BTreeMap<RegionName, Member>) -> Self {
        Self { epoch, ring, members }
    }

    /// The first view of a deployment: epoch 1, every region of the ring serving with its first generation.
    pub fn first(ring: Arc<Ring>) -> Self {
        let serving = Member { generation: 1, standing: Standing::Serving };
        let members = ring.regions().iter().map(|region| (region.name.clone(), serving)).collect();
        Self::new(1, ring, members)
    }

    /// The view's number.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// The ring of this view.
    pub fn ring(&self) -> &Ring {
        &self.ring
    }

    /// All regions, by name.
    pub fn members(&self) -> &BTreeMap<RegionName, Member> {
        &self.members
    }

    /// The origin under which a region writes its rows.
    pub fn origin(&self, region: &RegionName) -> Option<Origin> {
        let member = self.members.get(region)?;
        Some(Origin { region: region.clone(), generation: member.generation })
    }

    /// The first serving region of the key's order: the home normally. `None` if no region of its order serves.
    pub fn owner(&self, id: &KeyId) -> Option<&RegionName> {
        self.ring
            .order(id)
            .names()
            .find(|name| self.members.get(*name).is_some_and(|member| member.standing == Standing::Serving))
    }

    /// A digest of everything that decides an owner, so that peers can tell whether they hold the same view.
    pub fn digest(&self) -> Digest32 {
        let mut parts = vec![self.epoch.to_be_bytes().to_vec(), self.ring.digest().as_bytes().to_vec()];
        for (name, member) in &self.members {
            let standing = match member.standing {
                Standing::Serving => "serving".to_owned(),
                Standing::Sealed => "sealed".to_owned(),
                Standing::Lost { at } => format!("lost {at}"),
            };
            parts.push(format!("{name}#{} {standing}", member.generation).into_bytes());
        }
        let parts: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
        digest("onceway/view/1", &parts)
    }
}
