//! The invariants of the protocol, judged by the truth that no gateway sees
//! (docs/protocol.md#invariants).
//!
//! The checker judges each entry of the histories once, against the entries before it. So a look
//! costs only the new entries. More or fewer looks change only when a breach is reported.
//! Not judged here: the answers to clients (14, 20, 21: the scenarios ask), which only a client
//! sees. 15 follows from 1 and 2: views of one epoch are equal, and so are their owners.
//! It must not change anything.

mod doubles;
mod leases;
mod marks;
mod news;
mod records;
mod sends;
mod views;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use onceway::protocol::key::KeyId;
use onceway::protocol::region::RegionName;
use onceway::protocol::window::WindowRule;

use crate::table::Truth;
use crate::upstream::Happening;
use crate::words::moment;
use crate::world::World;
pub use marks::Marks;
use news::Cursors;
pub use news::{News, StoreNews, Voter};

macro_rules! invariants {
    ($($(#[$doc:meta])* $invariant:ident $number:literal $name:literal)*) => {
        /// An invariant that is judged here.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Invariant {
            $($(#[$doc])* $invariant,)*
        }

        impl Invariant {
            /// All invariants, in the order of the table.
            pub const ALL: &[Self] = &[$(Self::$invariant),*];

            /// The number, as stories and tables show it (docs/protocol.md#invariants). Kept seeds
            /// name it, so it stays.
            pub fn number(self) -> &'static str {
                match self { $(Self::$invariant => $number),* }
            }

            /// The name, as reports show it.
            pub fn name(self) -> &'static str {
                match self { $(Self::$invariant => $name),* }
            }
        }
    };
}

invariants! {
    /// At most one view is chosen per epoch, and no epoch is left out.
    OneViewPerEpoch "1" "one-view-per-epoch"
    /// Each view that a region adopts or keeps was chosen, and its epoch never falls.
    AdoptedIsChosen "2" "adopted-is-chosen"
    /// Attempts of a key are sent one after the other, and none by a lost region. No two regions
    /// may start one at the same time.
    OneSender "3" "one-sender"
    /// Each send has its claim, and its escrow, durable before it.
    ClaimedBeforeSent "4" "claimed-before-sent"
    /// Under escrow a second effect needs a rule of the route that allows it, or a claim at risk. A
    /// claim at risk is allowed only if no region that could be asked held the first claim.
    OneEffectUnderEscrow "5" "one-effect-under-escrow"
    /// Any other second effect is allowed by a rule of the route, or ran at risk.
    SecondEffectAtRisk "6" "second-effect-at-risk"
    /// If a key ran twice and some store shows both effects, a journal says so.
    DoublesJournalled "7" "doubles-journalled"
    /// A store that shows two attempts of a key settled has that, explained, in its own journal.
    DoublesFound "7.1" "doubles-found"
    /// An unexplained double in a journal is one: its key took effect twice.
    AlarmsAreTrue "7.2" "alarms-are-true"
    /// A record moves along the arrows only.
    Arrows "8" "arrows"
    /// Each claim of a key has a greater token than the one before.
    TokensGrow "9" "tokens-grow"
    /// A region serves only keys that are open at its store: nothing is missing there.
    OpenWhenCovered "10" "open-when-covered"
    /// A region's mark never goes back while its store is the same, except when it is lost.
    MarksStay "11" "marks-stay"
    /// A promise of an acceptor never falls, and the acceptor accepts nothing below it.
    PromisesKept "12" "promises-kept"
    /// A region sends, and holds a lease, only while grants of a majority run.
    GrantedWhenSent "13" "granted-when-sent"
    /// No grant of an older view replaces a grant.
    GrantsStay "2.1" "grants-stay"
    /// No grant is longer than its view allows.
    GrantsAgreed "2.2" "grants-agreed"
    /// A send asks the same as the newest attempt of its key that was known.
    AsksTheSame "16" "asks-the-same"
    /// No claim passes while the running server is not the approved one.
    BootApproved "18" "boot-approved"
    /// A final record stays until everything that it hides is gone.
    FinalStays "19" "final-stays"
    /// A claim is lodged under the view that it was made under.
    LodgedUnderItsView "4.1" "lodged-under-its-view"
    /// A new voter is silent until the leases that it does not know have run out.
    SilentAtFirst "H7" "silent-at-first"
    /// A send after another region's attempt knew of that attempt, or says that it ran at risk.
    KnewOfOthers "T2" "knew-of-others"
    /// A record that nobody sends under has the key's outcome from its first moment.
    WholeAtOnce "22" "whole-at-once"
    /// A key is remembered for as long as it was promised, by time that passed.
    KeptForItsLife "23" "kept-for-its-life"
}

impl fmt::Display for Invariant {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} {}", self.number(), self.name())
    }
}

/// An invariant that did not hold.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Breach {
    /// The time since the world began: a history entry's own time. For a missing entry, the time at
    /// which the checker noticed.
    pub at: Duration,
    /// The invariant.
    pub invariant: Invariant,
    /// A description of the breach.
    pub text: String,
}

impl fmt::Display for Breach {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { at, invariant, text } = self;
        write!(out, "{invariant} at {at:?}: {text}")
    }
}

#[derive(Default)]
struct Found {
    all: Vec<Breach>,
    /// The origin of the moments in texts.
    zero: Duration,
}

impl Found {
    fn push(&mut self, invariant: Invariant, at: Duration, text: String) {
        self.all.push(Breach { at, invariant, text });
    }

    fn moment(&self, at: Duration) -> String {
        moment(at, self.zero)
    }
}

/// Judges one world, step by step.
pub struct Checker {
    cursors: Cursors,
    zero: Duration,
    reruns: BTreeSet<Arc<str>>,
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
            reruns,
            views: views::Views::new(rule),
            records: records::Records::default(),
            leases: leases::Leases::default(),
            sends: sends::Sends::default(),
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

    /// Like [`Self::step`], and judges doubles that no journal has, which only the end of a
    /// scenario shows. Call it when no work is under way any more.
    pub fn finish(&mut self, world: &World) -> Vec<Breach> {
        let mut breaches = self.step(world);
        breaches.extend(self.judge_end(&world.upstreams.ledger(), world.cluster.truths(), world.elapsed()));
        breaches
    }

    /// Judges what only the end shows: these effects, and these stores as they are at `now`.
    pub fn judge_end(
        &self,
        ledger: &BTreeMap<KeyId, Vec<Happening>>,
        mut stores: Vec<Truth>,
        now: Duration,
    ) -> Vec<Breach> {
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
            self.views.adopted(&store, &mut found);
            self.records.wrote(store, &self.views, &mut self.marks, &mut found);
        }
        for sent in arrivals {
            self.leases.sent(&sent, &mut found);
            self.sends.sent(sent, &self.views, &self.records, &mut found);
        }
        for effect in effects {
            self.sends.happened(&effect, &self.reruns, &self.views, &self.records, &mut found);
        }
        found.all
    }
}
