//! The invariants of the protocol, judged by the truth that no gateway sees
//! (docs/protocol.md#invariants).
//!
//! Neighbours: [`news`] reads what stores, witnesses and upstreams went through since the last look; [`views`], [`records`], [`leases`],
//! [`sends`] and [`doubles`] hold one function for each invariant. What is judged is each entry of the histories, once, against those before it: so a
//! look costs what happened since the last one, and how often anybody looks changes nothing but when a breach is told.
//! Not visible from outside a gateway, and so not here: what clients are told (14, 20, 21: the
//! scenarios ask). 15 is in 1 and 2: views of one epoch are equal, and so are their owners. It must not change anything.

mod doubles;
mod leases;
mod news;
mod records;
mod sends;
mod views;

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use onceway::protocol::region::RegionName;

use crate::words::moment;
use crate::world::World;
use news::{Cursors, News};

/// An invariant that is judged here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Invariant {
    /// At most one view is chosen per epoch, and no epoch is left out.
    OneViewPerEpoch,
    /// Whatever a region adopts or keeps was chosen, and its epoch never falls.
    AdoptedIsChosen,
    /// Attempts of a key are sent one after the other, and none by a region that is lost; no two regions may start one at the same time.
    OneSender,
    /// Each send has its claim, and its escrow, durable before it.
    ClaimedBeforeSent,
    /// Under escrow a second effect is allowed by a rule of the route, or ran at risk where no region that could be asked held the first one's claim.
    OneEffectUnderEscrow,
    /// Any other second effect is allowed by a rule of the route, or ran at risk.
    SecondEffectAtRisk,
    /// Of a key that ran twice, and of which some store shows both, a journal says so.
    DoublesJournalled,
    /// A store that shows two attempts of a key settled has that in its own journal, with what explains it.
    DoublesFound,
    /// A record moves along the arrows only.
    Arrows,
    /// Each claim of a key has a greater token than the one before.
    TokensGrow,
    /// What a region serves is open at its store: nothing is missing there.
    OpenWhenCovered,
    /// A region's mark never goes back while its store is the same, except when it is lost.
    MarksStay,
    /// What an acceptor promised never falls, and nothing is accepted below it.
    PromisesKept,
    /// What is sent is sent, and a lease is held, while grants of a majority run.
    GrantedWhenSent,
    /// A grant is replaced by none of an older view.
    GrantsStay,
    /// What is sent for a key asks the same as the newest attempt of it that was known.
    AsksTheSame,
    /// No claim passes while the running server is not the approved one.
    BootApproved,
    /// What is final stays so, until everything that it hides is gone.
    FinalStays,
    /// A claim is lodged under the view that it was made under.
    LodgedUnderItsView,
    /// A new voter is silent until what it knows nothing of has run out.
    SilentAtFirst,
    /// Whoever is sent after another region's attempt knew of it, or says that it ran at risk.
    KnewOfOthers,
    /// A record that nobody sends under says what became of a key from its first moment.
    WholeAtOnce,
    /// A key is remembered for as long as it was promised, by time that passed.
    KeptForItsLife,
}

impl Invariant {
    /// All of them, in the order of the table.
    pub const ALL: [Self; 23] = [
        Self::OneViewPerEpoch,
        Self::AdoptedIsChosen,
        Self::OneSender,
        Self::ClaimedBeforeSent,
        Self::OneEffectUnderEscrow,
        Self::SecondEffectAtRisk,
        Self::DoublesJournalled,
        Self::DoublesFound,
        Self::Arrows,
        Self::TokensGrow,
        Self::OpenWhenCovered,
        Self::MarksStay,
        Self::PromisesKept,
        Self::GrantedWhenSent,
        Self::GrantsStay,
        Self::AsksTheSame,
        Self::BootApproved,
        Self::FinalStays,
        Self::LodgedUnderItsView,
        Self::SilentAtFirst,
        Self::KnewOfOthers,
        Self::WholeAtOnce,
        Self::KeptForItsLife,
    ];

    /// Its number, as stories and tables show it (docs/protocol.md#invariants). Kept seeds name it,
    /// so it stays.
    pub fn number(self) -> &'static str {
        match self {
            Self::OneViewPerEpoch => "1",
            Self::AdoptedIsChosen => "2",
            Self::OneSender => "3",
            Self::ClaimedBeforeSent => "4",
            Self::OneEffectUnderEscrow => "5",
            Self::SecondEffectAtRisk => "6",
            Self::DoublesJournalled => "7",
            Self::DoublesFound => "7.1",
            Self::Arrows => "8",
            Self::TokensGrow => "9",
            Self::OpenWhenCovered => "10",
            Self::MarksStay => "11",
            Self::PromisesKept => "12",
            Self::GrantedWhenSent => "13",
            Self::GrantsStay => "2.1",
            Self::AsksTheSame => "16",
            Self::BootApproved => "18",
            Self::FinalStays => "19",
            Self::LodgedUnderItsView => "4.1",
            Self::SilentAtFirst => "H7",
            Self::KnewOfOthers => "T2",
            Self::WholeAtOnce => "22",
            Self::KeptForItsLife => "23",
        }
    }

    /// Its name, as reports show it.
    pub fn name(self) -> &'static str {
        match self {
            Self::OneViewPerEpoch => "one-view-per-epoch",
            Self::AdoptedIsChosen => "adopted-is-chosen",
            Self::OneSender => "one-sender",
            Self::ClaimedBeforeSent => "claimed-before-sent",
            Self::OneEffectUnderEscrow => "one-effect-under-escrow",
            Self::SecondEffectAtRisk => "second-effect-at-risk",
            Self::DoublesJournalled => "doubles-journalled",
            Self::DoublesFound => "doubles-found",
            Self::Arrows => "arrows",
            Self::TokensGrow => "tokens-grow",
            Self::OpenWhenCovered => "open-when-covered",
            Self::MarksStay => "marks-stay",
            Self::PromisesKept => "promises-kept",
            Self::GrantedWhenSent => "granted-when-sent",
            Self::GrantsStay => "grants-stay",
            Self::AsksTheSame => "asks-the-same",
            Self::BootApproved => "boot-approved",
            Self::FinalStays => "final-stays",
            Self::LodgedUnderItsView => "lodged-under-its-view",
            Self::SilentAtFirst => "silent-at-first",
            Self::KnewOfOthers => "knew-of-others",
            Self::WholeAtOnce => "whole-at-once",
            Self::KeptForItsLife => "kept-for-its-life",
        }
    }
}

impl fmt::Display for Invariant {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} {}", self.number(), self.name())
    }
}

/// An invariant that did not hold.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Breach {
    /// When, since the world began: of a history's entry its own time, of what is missing the time at which it was missed.
    pub at: Duration,
    /// Which invariant.
    pub invariant: Invariant,
    /// What broke it.
    pub text: String,
}

impl fmt::Display for Breach {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { at, invariant, text } = self;
        write!(out, "{invariant} at {at:?}: {text}")
    }
}

/// The breaches of one look.
#[derive(Default)]
struct Found {
    all: Vec<Breach>,
    /// What the moments in texts count from.
    zero: Duration,
}

impl Found {
    fn push(&mut self, invariant: Invariant, at: Duration, text: String) {
        self.all.push(Breach { at, invariant, text });
    }

    /// A moment, as a story tells it.
    fn moment(&self, at: Duration) -> String {
        moment(at, self.zero)
    }
}

/// Judges one world, bit by bit.
pub struct Checker {
    cursors: Cursors,
    zero: Duration,
    reruns: BTreeSet<Arc<str>>,
    views: views::Views,
    records: records::Records,
    leases: leases::Leases,
    sends: sends::Sends,
}

impl Checker {
    /// A checker that has seen nothing yet. `reruns` are the routes whose doubts are run again, so that a second effect breaks nothing.
    /// No window after a loss is shorter than `floor`.
    pub fn new(reruns: BTreeSet<Arc<str>>, floor: Duration) -> Self {
        Self {
            cursors: Cursors::default(),
            zero: Duration::ZERO,
            reruns,
            views: views::Views::new(floor),
            records: records::Records::default(),
            leases: leases::Leases::default(),
            sends: sends::Sends::default(),
        }
    }

    /// The same, whose texts count time from `zero` on, as a story does.
    #[must_use]
    pub fn counting_from(self, zero: Duration) -> Self {
        Self { zero, ..self }
    }

    /// Every breach in what happened since the last look; none is told twice.
    pub fn step(&mut self, world: &World) -> Vec<Breach> {
        let news = News::since(world, &mut self.cursors);
        if news.is_empty() {
            return Vec::new();
        }
        self.judge(news)
    }

    /// Whether grants of a majority run for a region at that time, by all that was looked at.
    pub fn is_granted(&self, region: &RegionName, at: Duration) -> bool {
        self.leases.is_granted(region, at)
    }

    /// The same, and what can be said at the end of a scenario only, when nothing is under way any more: which doubles no journal has.
    pub fn finish(&mut self, world: &World) -> Vec<Breach> {
        let mut breaches = self.step(world);
        let mut found = Found { zero: self.zero, ..Found::default() };
        let stores = world.cluster.truths();
        doubles::doubles_are_journalled(&world.upstreams.ledger(), &stores, &mut found);
        doubles::doubles_are_found(&stores, world.elapsed(), &mut found);
        breaches.append(&mut found.all);
        breaches
    }

    fn judge(&mut self, news: News) -> Vec<Breach> {
        let mut found = Found { zero: self.zero, ..Found::default() };
        let News { now, stores, votes, granted, arrivals, effects } = news;
        // First what was agreed on, then what stores did, then what was sent: each is judged by the ones before.
        self.leases.voted(&votes);
        self.leases.granted(granted, &mut found);
        self.views.agreed(votes, now, &mut found);
        for store in stores {
            self.views.adopted(&store, &mut found);
            self.records.wrote(store, &self.views, &mut found);
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
