//! The invariants, each with its name and the rule of the protocol that it belongs to.
//!
//! `docs/simulation.md` lists them with what they demand. A name never changes: kept seeds have it.

use std::fmt;
use std::time::Duration;

use onceway::protocol::named;

use crate::words::moment;

macro_rules! invariants {
    ($($invariant:ident $rule:literal $name:literal $about:literal)*) => {
        named! { "An invariant that is judged here." Invariant $($invariant $name $about)* }

        impl Invariant {
            /// The number of the rule that it belongs to (docs/protocol.md).
            pub fn rule(self) -> u8 {
                match self { $(Self::$invariant => $rule),* }
            }
        }
    };
}

invariants! {
    OneViewPerEpoch 15 "one-view-per-epoch" "At most one view is chosen per epoch, and no epoch is left out."
    AdoptedIsChosen 16 "adopted-is-chosen" "Each view that a region adopts or keeps was chosen, and its epoch never falls."
    OneSender 9 "one-sender" "Attempts of a key are sent one after the other, and none by a lost region. No two regions may start one at the same time."
    ClaimedBeforeSent 5 "claimed-before-sent" "Each send has its claim, and its escrow, durable before it."
    OneEffectUnderEscrow 38 "one-effect-under-escrow" "Under escrow a second effect needs a rule of the route that allows it, or a claim at risk. A claim at risk is allowed only if no region that could be asked held the first claim."
    SecondEffectAtRisk 31 "second-effect-at-risk" "Any other second effect is allowed by a rule of the route, or ran at risk."
    DoublesJournalled 40 "doubles-journalled" "If a key ran twice and some store shows both effects, a journal says so."
    DoublesFound 40 "doubles-found" "A store that shows two attempts of a key settled has that, explained, in its own journal."
    AlarmsAreTrue 40 "alarms-are-true" "An unexplained double in a journal is one: its key took effect twice."
    Arrows 10 "arrows" "A record moves along the arrows only."
    TokensGrow 6 "tokens-grow" "Each claim of a key has a greater token than the one before."
    OpenWhenCovered 26 "open-when-covered" "A region serves only keys that are open at its store: nothing is missing there."
    MarksStay 18 "marks-stay" "A region's mark never goes back while its store is the same, except when it is lost."
    PromisesKept 14 "promises-kept" "A promise of an acceptor never falls, and the acceptor accepts nothing below it."
    GrantedWhenSent 23 "granted-when-sent" "A region sends, and holds a lease, only while grants of a majority run."
    GrantsStay 24 "grants-stay" "No grant of an older view replaces a grant."
    GrantsAgreed 17 "grants-agreed" "No grant is longer than its view allows."
    AsksTheSame 1 "asks-the-same" "A send asks the same as the newest attempt of its key that was known."
    BootApproved 8 "boot-approved" "No claim passes while the running server is not the approved one."
    FinalStays 44 "final-stays" "A final record stays until everything that it hides is gone."
    LodgedUnderItsView 37 "lodged-under-its-view" "A claim is lodged under the view that it was made under."
    SilentAtFirst 17 "silent-at-first" "A new voter is silent until the leases that it does not know have run out."
    KnewOfOthers 4 "knew-of-others" "A send after another region's attempt knew of that attempt, or says that it ran at risk."
    WholeAtOnce 41 "whole-at-once" "A record that nobody sends under has the key's outcome from its first moment."
    KeptForItsLife 43 "kept-for-its-life" "A key is remembered for as long as it was promised, by time that passed."
}

impl fmt::Display for Invariant {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} (rule {})", self.name(), self.rule())
    }
}

/// An invariant that did not hold.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Breach {
    /// Its time since the world began: of a missing entry, when the checker noticed.
    pub at: Duration,
    pub invariant: Invariant,
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
