//! Versions of the peer protocol: those that a process speaks, and the common one of two processes.
//!
//! This is the only place with the numbers. Three rules ([`Versions`]) let two neighbouring
//! versions work side by side.

use std::fmt;

/// The oldest version that this program speaks.
pub const OLDEST: u16 = 1;
/// The newest version that this program speaks.
pub const NEWEST: u16 = 1;
/// The version after it, which no program speaks yet. A view that goes by it can be read, so that
/// tests have processes of two versions side by side.
pub const NEXT: u16 = NEWEST + 1;

/// The versions that a process speaks: all from the oldest to the newest.
///
/// - A program speaks the version before its own.
/// - Unknown members of messages are ignored, so a newer version may add ignorable members at any
///   time. A member that must be heeded is sent only under a view whose version has it. Agreed and
///   kept values (views, ballots, grants) are read strictly: a dropped member would make another
///   value of them.
/// - The view's version only grows, by an operator's act, once every region and witness speaks it.
///   Until then each process can be put back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Versions {
    oldest: u16,
    newest: u16,
}

impl Versions {
    /// All versions that this program speaks.
    pub const OURS: Self = Self { oldest: OLDEST, newest: NEWEST };
    /// The versions of a process that does not name any.
    pub const UNSAID: Self = Self { oldest: 1, newest: 1 };

    /// The versions from `oldest`, at least 1, to `newest`; `None` if that is no range.
    pub fn new(oldest: u16, newest: u16) -> Option<Self> {
        (1 <= oldest && oldest <= newest).then_some(Self { oldest, newest })
    }

    /// Reads the output of `Display`, and nothing else.
    pub fn parse(text: &str) -> Option<Self> {
        let (oldest, newest) = text.split_once('-')?;
        let versions = Self::new(oldest.parse().ok()?, newest.parse().ok()?)?;
        (versions.to_string() == text).then_some(versions)
    }

    /// The newest of them.
    pub fn newest(self) -> u16 {
        self.newest
    }

    /// True if this is one of them.
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
    fn two_processes_agree_on_their_newest_common_version() {
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
        assert!(NEWEST == 1 || Versions::OURS.has(NEWEST - 1));
        assert_eq!(Versions::OURS.common(of(NEWEST, NEXT)), Some(NEWEST));
    }
}
