//! Versions of what regions say to each other: which of them a process speaks, and which one two processes have in common.
//!
//! Neighbours: [`super::view`] carries the version that a deployment goes by, `ports::peers` and `adapters::wire` say what each process
//! speaks, `gateway::speech` acts on it. This is the one place with the numbers. It must not know what a message looks like.
//!
//! A version is added with what it adds: 1 is everything up to the first views. 2: pings say what was heard of each store, and views may
//! name the version that they go by. 3: views say what their routes under escrow mean. Three rules
//! keep two neighbouring versions side by side:
//! * A program speaks the version before its own. A reply is written in the newest version that both ends speak.
//! * Members of messages that are not known are left alone, so a newer version may add what may be left alone, at any time. What must be
//!   heeded is said only under a view that goes by a version that has it. What is agreed on and kept (views, ballots, grants) is read to the
//!   letter: a member that was dropped there would make it another value.
//! * The view's version only grows, by an operator's act, once every region and witness speaks it. Until then each process can be put back.

use std::fmt;

/// The oldest version that this program speaks.
pub const OLDEST: u16 = 1;
/// The newest.
pub const NEWEST: u16 = 3;
/// The first in which pings say what was heard of each store.
pub const HEARD: u16 = 2;
/// The first whose views say what their routes under escrow mean (docs/protocol.md#rule-38).
pub const MEANINGS: u16 = 3;

/// The versions that a process speaks: all from the oldest to the newest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Versions {
    oldest: u16,
    newest: u16,
}

impl Versions {
    /// All that this program speaks.
    pub const OURS: Self = Self { oldest: OLDEST, newest: NEWEST };
    /// What a process speaks that does not say so: it is of a time when there was one.
    pub const UNSAID: Self = Self { oldest: 1, newest: 1 };

    /// From `oldest` to `newest`; `None` if there are none, as versions begin with 1.
    pub fn new(oldest: u16, newest: u16) -> Option<Self> {
        (1 <= oldest && oldest <= newest).then_some(Self { oldest, newest })
    }

    /// Reads what `Display` writes, and nothing else.
    pub fn parse(text: &str) -> Option<Self> {
        let (oldest, newest) = text.split_once('-')?;
        let versions = Self::new(oldest.parse().ok()?, newest.parse().ok()?)?;
        (versions.to_string() == text).then_some(versions)
    }

    /// The newest of them.
    pub fn newest(self) -> u16 {
        self.newest
    }

    /// Whether this is one of them.
    pub fn has(self, version: u16) -> bool {
        self.oldest <= version && version <= self.newest
    }

    /// The newest version that both speak; `None` if they cannot work together.
    pub fn common(self, other: Self) -> Option<u16> {
        let newest = self.newest.min(other.newest);
        (self.has(newest) && other.has(newest)).then_some(newest)
    }
}

impl fmt::Display for Versions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.oldest, self.newest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(oldest: u16, newest: u16) -> Versions {
        Versions::new(oldest, newest).unwrap()
    }

    #[test]
    fn two_processes_have_the_newest_in_common_that_both_speak() {
        assert_eq!(of(1, 2).common(of(1, 1)), Some(1));
        assert_eq!(of(1, 3).common(of(2, 4)), Some(3));
        for (one, other) in [(of(1, 2), of(3, 3)), (of(3, 3), of(1, 2)), (of(4, 9), of(1, 3))] {
            assert_eq!(one.common(other), None, "{one} and {other}");
        }
    }

    #[test]
    fn versions_have_one_spelling() {
        assert_eq!(Versions::parse("1-2"), Some(of(1, 2)));
        for wrong in ["", "1", "2-1", "0-1", "1-2-3", "01-2", "+1-2", "1 - 2", "1-99999"] {
            assert_eq!(Versions::parse(wrong), None, "{wrong:?}");
        }
    }

    /// A program that does not speak the version before its own cannot be rolled out.
    #[test]
    fn this_program_speaks_the_version_before_its_own() {
        assert!(Versions::OURS.has(NEWEST - 1) || NEWEST == 1);
        assert!(Versions::OURS.common(of(NEWEST - 1, NEWEST - 1)).is_some());
    }
}
