//! The news of a world since the last look: the ends of all its histories.
//!
//! [`crate::cluster`], [`crate::witness`] and [`crate::upstream`] keep the histories. A history
//! only ever grows, so a cursor is a length.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use onceway::protocol::key::KeyId;
use onceway::protocol::record::Token;
use onceway::protocol::region::{Origin, RegionName};
use onceway::protocol::view::View;

use crate::table::{Gated, Granted, HeardOf, Held, Lodgment, Table, Write, fresh};
use crate::upstream::Attempted;
use crate::world::World;

/// Rows that each store had of each origin.
pub(super) type Heard = BTreeMap<u64, BTreeMap<Origin, HeardOf>>;

/// The owner of an acceptor's history: a store, by its number, or a witness.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Voter {
    Store(u64),
    /// A witness, by its place in the list.
    Witness(usize),
}

#[derive(Clone, Debug)]
pub struct StoreNews {
    /// The store's number: no other store ever has it.
    pub number: u64,
    pub origin: Origin,
    pub gates: Vec<Gated>,
    pub kept: Vec<Arc<View>>,
    pub lodged: Vec<Lodgment>,
    pub writes: Vec<Write>,
}

/// The new entries of all histories.
#[derive(Clone, Debug, Default)]
pub struct News {
    /// The time of the look, since the world began.
    pub now: Duration,
    /// Rows that each store had of each origin when it was read before.
    pub heard: Heard,
    pub stores: Vec<StoreNews>,
    pub votes: Vec<(Voter, Vec<Held>)>,
    /// Attempts whose rows came to another region's store.
    pub arrived: Vec<(Origin, (RegionName, KeyId, Token))>,
    pub granted: Vec<Granted>,
    /// In the order of arrival.
    pub arrivals: Vec<Attempted>,
    /// In the order in which they began.
    pub effects: Vec<Attempted>,
}

#[derive(Default)]
pub(super) struct Cursors {
    stores: BTreeMap<u64, StoreCursor>,
    witnesses: BTreeMap<usize, (usize, usize)>,
    arrivals: usize,
    effects: usize,
}

#[derive(Default)]
struct StoreCursor {
    gates: usize,
    kept: usize,
    lodged: usize,
    commits: usize,
    acceptors: usize,
    granted: usize,
    arrived: usize,
    heard: BTreeMap<Origin, HeardOf>,
}

impl News {
    pub(super) fn since(world: &World, cursors: &mut Cursors) -> Self {
        let mut news = Self { now: world.elapsed(), ..Self::default() };
        world.cluster.each_table(|table| news.read(table, cursors.stores.entry(table.number()).or_default()));
        for (number, witness) in world.witnesses().into_iter().enumerate() {
            let (held, granted) = cursors.witnesses.entry(number).or_default();
            news.granted.extend(witness.granted_since(granted));
            let held = witness.history_since(held);
            news.votes.extend((!held.is_empty()).then_some((Voter::Witness(number), held)));
        }
        news.arrivals = world.upstreams.arrived_since(&mut cursors.arrivals);
        news.effects = world.upstreams.begun_since(&mut cursors.effects);
        news
    }

    pub(super) fn is_empty(&self) -> bool {
        let Self { now: _, heard: _, stores, votes, arrived, granted, arrivals, effects } = self;
        let attempts = arrived.is_empty() && arrivals.is_empty() && effects.is_empty();
        stores.is_empty() && votes.is_empty() && granted.is_empty() && attempts
    }

    fn read(&mut self, table: &Table, cursor: &mut StoreCursor) {
        let (history, number) = (table.history(), table.number());
        self.heard.insert(number, std::mem::replace(&mut cursor.heard, table.heard()));
        let held = fresh(&history.acceptors, &mut cursor.acceptors);
        if !held.is_empty() {
            self.votes.push((Voter::Store(number), held.to_vec()));
        }
        let arrived = fresh(&history.arrived, &mut cursor.arrived).iter();
        self.arrived.extend(arrived.map(|attempt| (table.origin().clone(), attempt.clone())));
        self.granted.extend_from_slice(fresh(&history.granted, &mut cursor.granted));
        let commits = fresh(table.log(), &mut cursor.commits);
        let news = StoreNews {
            number,
            origin: table.origin().clone(),
            gates: fresh(&history.gates, &mut cursor.gates).to_vec(),
            kept: fresh(&history.views, &mut cursor.kept).to_vec(),
            lodged: fresh(&history.lodged, &mut cursor.lodged).to_vec(),
            writes: commits.iter().filter_map(|commit| commit.written()).collect(),
        };
        let StoreNews { number: _, origin: _, gates, kept, lodged, writes } = &news;
        if !(gates.is_empty() && kept.is_empty() && lodged.is_empty() && writes.is_empty()) {
            self.stores.push(news);
        }
    }
}
