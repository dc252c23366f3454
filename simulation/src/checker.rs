//! The invariants of the protocol, judged by the truth that no gateway sees
//! (docs/protocol.md#invariants).
//!
//! The checker judges each entry of the histories once, against the entries before it. More looks
//! change only when a breach is reported. `play::answers` judges what only a client sees.

mod doubles;
mod invariant;
mod leases;
mod news;
mod records;
mod sends;
mod views;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use onceway::protocol::key::KeyId;
use onceway::protocol::region::RegionName;
use onceway::protocol::window::WindowRule;

use crate::table::Truth;
use crate::upstream::Ledger;
use crate::world::World;
pub(crate) use doubles::journalled_doubles;
use invariant::Found;
pub use invariant::{Breach, Invariant};
use news::Cursors;
pub use news::{News, StoreNews, Voter};
pub use views::Marks;
pub(crate) use views::is_agreed;

/// Judges one world, step by step.
pub struct Checker {
    cursors: Cursors,
    zero: Duration,
    rule: WindowRule,
    views: views::Views,
    records: records::Records,
    leases: leases::Leases,
    sends: sends::Sends,
    marks: Marks,
}

impl Checker {
    /// A checker that has seen nothing yet. On the routes in `reruns` doubts are run again, so a
    /// second effect breaks nothing there. No window after a loss is shorter than `rule` says.
    pub fn new(reruns: BTreeSet<Arc<str>>, rule: WindowRule) -> Self {
        Self {
            cursors: Cursors::default(),
            zero: Duration::ZERO,
            rule,
            views: views::Views::default(),
            records: records::Records::default(),
            leases: leases::Leases::default(),
            sends: sends::Sends::new(reruns),
            marks: Marks::default(),
        }
    }

    /// The same checker, but its texts count time from `zero` on, as a story does.
    #[must_use]
    pub fn counting_from(self, zero: Duration) -> Self {
        Self { zero, ..self }
    }

    /// Returns each breach since the last look, and none twice.
    pub fn step(&mut self, world: &World) -> Vec<Breach> {
        let news = News::since(world, &mut self.cursors);
        if news.is_empty() {
            return Vec::new();
        }
        self.judge(news)
    }

    /// The runs that were marked at risk, and those of them that were marked too much.
    pub fn marks(&self) -> &Marks {
        &self.marks
    }

    /// The keys that took effect more than once in one life.
    pub fn doubled(&self) -> &BTreeSet<KeyId> {
        &self.sends.doubled
    }

    /// The number of effects on keys that had taken effect only in a life that was over.
    pub fn ran_anew(&self) -> u64 {
        self.sends.anew
    }

    /// True if grants of a majority run for a region at that time, by all that was looked at.
    pub fn is_granted(&self, region: &RegionName, at: Duration) -> bool {
        self.leases.is_granted(region, at)
    }

    /// Like [`Self::step`], and judges what only the end shows, when no work is under way any more.
    pub fn finish(&mut self, world: &World) -> Vec<Breach> {
        let mut breaches = self.step(world);
        breaches.extend(self.judge_end(&world.upstreams.ledger(), world.cluster.truths(), world.elapsed()));
        breaches
    }

    /// Judges what only the end shows: these effects, and these stores as they are at `now`.
    pub fn judge_end(&self, ledger: &Ledger, mut stores: Vec<Truth>, now: Duration) -> Vec<Breach> {
        let mut found = Found { zero: self.zero, ..Found::default() };
        let rows = stores.iter_mut().flat_map(|store| &mut store.rows);
        rows.for_each(|(id, rows)| self.records.of_last_life(id, rows));
        doubles::doubles_are_journalled(ledger, &stores, &mut found);
        doubles::doubles_are_found(&stores, now, &mut found);
        doubles::alarms_are_true(ledger, &stores, now, &mut found);
        found.all
    }

    /// Judges these entries, each against those of before.
    pub fn judge(&mut self, news: News) -> Vec<Breach> {
        let mut found = Found { zero: self.zero, ..Found::default() };
        let News { now, heard, stores, votes, arrived, granted, arrivals, effects } = news;
        self.records.came(arrived);
        // Views first, then stores, then sends: each is judged by the ones before.
        self.leases.voted(&votes);
        self.leases.granted(granted, &mut found);
        self.views.agreed(votes, now, &mut found);
        self.marks.heard(heard);
        for store in stores {
            self.views.adopted(&store, &self.rule, &mut found);
            self.records.wrote(store, &self.views, &mut self.marks, &mut found);
        }
        let known = sends::Known { views: &self.views, records: &self.records };
        for sent in arrivals {
            self.leases.sent(&sent, &mut found);
            self.sends.sent(sent, known, &mut found);
        }
        for effect in effects {
            self.sends.happened(&effect, known, &mut found);
        }
        found.all
    }
}
