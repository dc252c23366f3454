//! The invariants, each with its name and the rule of the protocol that it belongs to.
//!
//! `docs/simulation.md` lists them with what they demand. A name never changes: kept seeds have it.

use std::fmt;
use std::time::Duration;

use crate::words::moment;

macro_rules! invariants {
    ($($(#[$doc:meta])* $invariant:ident $rule:literal $name:literal)*) => {
        /// An invariant that is judged here.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Invariant {
            $($(#[$doc])* $invariant,)*
        }

        impl Invariant {
            /// All invariants, in the order of the table.
            pub const ALL: &[Self] = &[$(Self::$invariant),*];

            /// The number of the rule that it belongs to (docs/protocol.md).
            pub fn rule(self) -> u8 {
                match self { $(Self::$invariant => $rule),* }
            }

            /// The name, as stories, reports and kept seeds show it.
            pub fn name(self) -> &'static str {
                match self { $(Self::$invariant => $name),* }
            }
        }
    };
}

invariants! {
    /// At most one view is chosen per epoch, and no epoch is left out.
    OneViewPerEpoch 15 "one-view-per-epoch"
    /// Each view that a region adopts or keeps was chosen, and its epoch never falls.
    AdoptedIsChosen 16 "adopted-is-chosen"
    /// Attempts of a key are sent one after the other, and none by a lost region. No two regions
    /// may start one at the same time.
    OneSender 9 "one-sender"
    /// Each send has its claim, and its escrow, durable before it.
    ClaimedBeforeSent 5 "claimed-before-sent"
    /// Under escrow a second effect needs a rule of the route that allows it, or a claim at risk. A
    /// claim at risk is allowed only if no region that could be asked held the first claim.
    OneEffectUnderEscrow 38 "one-effect-under-escrow"
    /// Any other second effect is allowed by a rule of the route, or ran at risk.
    SecondEffectAtRisk 31 "second-effect-at-risk"
    /// If a key ran twice and some store shows both effects, a journal says so.
    DoublesJournalled 40 "doubles-journalled"
    /// A store that shows two attempts of a key settled has that, explained, in its own journal.
    DoublesFound 40 "doubles-found"
    /// An unexplained double in a journal is one: its key took effect twice.
    AlarmsAreTrue 40 "alarms-are-true"
    /// A record moves along the arrows only.
    Arrows 10 "arrows"
    /// Each claim of a key has a greater token than the one before.
    TokensGrow 6 "tokens-grow"
    /// A region serves only keys that are open at its store: nothing is missing there.
    OpenWhenCovered 26 "open-when-covered"
    /// A region's mark never goes back while its store is the same, except when it is lost.
    MarksStay 18 "marks-stay"
    /// A promise of an acceptor never falls, and the acceptor accepts nothing below it.
    PromisesKept 14 "promises-kept"
    /// A region sends, and holds a lease, only while grants of a majority run.
    GrantedWhenSent 23 "granted-when-sent"
    /// No grant of an older view replaces a grant.
    GrantsStay 24 "grants-stay"
    /// No grant is longer than its view allows.
    GrantsAgreed 17 "grants-agreed"
    /// A send asks the same as the newest attempt of its key that was known.
    AsksTheSame 1 "asks-the-same"
    /// No claim passes while the running server is not the approved one.
    BootApproved 8 "boot-approved"
    /// A final record stays until everything that it hides is gone.
    FinalStays 44 "final-stays"
    /// A claim is lodged under the view that it was made under.
    LodgedUnderItsView 37 "lodged-under-its-view"
    /// A new voter is silent until the leases that it does not know have run out.
    SilentAtFirst 17 "silent-at-first"
    /// A send after another region's attempt knew of that attempt, or says that it ran at risk.
    KnewOfOthers 4 "knew-of-others"
    /// A record that nobody sends under has the key's outcome from its first moment.
    WholeAtOnce 41 "whole-at-once"
    /// A key is remembered for as long as it was promised, by time that passed.
    KeptForItsLife 43 "kept-for-its-life"
}

impl fmt::Display for Invariant {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} (rule {})", self.name(), self.rule())
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

/// The breaches of one look.
#[derive(Default)]
pub(super) struct Found {
    pub(super) all: Vec<Breach>,
    /// The origin of the moments in texts.
    pub(super) zero: Duration,
}

impl Found {
    pub(super) fn push(&mut self, invariant: Invariant, at: Duration, text: String) {
        self.all.push(Breach { at, invariant, text });
    }

    pub(super) fn moment(&self, at: Duration) -> String {
        moment(at, self.zero)
    }
}
