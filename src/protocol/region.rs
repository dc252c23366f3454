//! Regions and origins: the names by which one part of the deployment speaks of another.
//!
//! Each name has exactly one spelling. This file must not know a region's state or address.

use std::fmt;
use std::sync::Arc;

/// A region's name: 1 to 32 of `a-z`, `0-9` and `-`, first a letter, last not `-`. Certificate
/// names, table names and metrics contain it unchanged, hence the narrow alphabet. Cheap to clone;
/// ordered by its bytes.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RegionName(Arc<str>);

/// The reason why a text is not a region's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RegionNameError {
    /// The text is empty.
    #[error("a region name is empty: give it 1 to 32 characters")]
    Empty,
    /// More than 32 bytes.
    #[error("a region name is {len} bytes long: at most 32 are allowed")]
    TooLong {
        /// Its length in bytes.
        len: usize,
    },
    /// A character outside the alphabet, or a wrong first or last one.
    #[error("a region name must be of a-z, 0-9 and '-', start with a letter and not end with '-'")]
    Malformed,
}

impl RegionName {
    /// The most bytes a name has.
    pub const MAX_LEN: usize = 32;

    /// Reads a name.
    ///
    /// # Errors
    /// The first of the rules above that `text` breaks.
    pub fn parse(text: &str) -> Result<Self, RegionNameError> {
        let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        let Some(first) = text.bytes().next() else { return Err(RegionNameError::Empty) };
        if text.len() > Self::MAX_LEN {
            return Err(RegionNameError::TooLong { len: text.len() });
        }
        if !first.is_ascii_lowercase() || text.ends_with('-') || !text.bytes().all(allowed) {
            return Err(RegionNameError::Malformed);
        }
        Ok(Self(text.into()))
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for RegionName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The writer of a row: a region, and the build of its store (a region rebuilt from its peers
/// starts the next generation). Shown as `name#generation`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Origin {
    /// The region.
    pub region: RegionName,
    /// The build of its store.
    pub generation: u32,
}

/// The reason why a text is not an origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OriginError {
    /// The part before `#`.
    #[error("an origin must be written name#generation: {0}")]
    Region(#[from] RegionNameError),
    /// No `#`, or the part after it is not a plain number that fits 32 bits.
    #[error(
        "an origin must be written name#generation, the generation a number below 2^32 without sign or leading zeros"
    )]
    Generation,
}

impl Origin {
    /// Reads the output of [`Display`](fmt::Display), and nothing else: each origin has one
    /// spelling.
    pub fn parse(text: &str) -> Result<Self, OriginError> {
        let (region, digits) = text.split_once('#').ok_or(OriginError::Generation)?;
        let region = RegionName::parse(region)?;
        let generation: u32 = digits.parse().map_err(|_| OriginError::Generation)?;
        if generation.to_string() != digits {
            return Err(OriginError::Generation);
        }
        Ok(Self { region, generation })
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}#{}", self.region, self.generation)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        let longest = "a".repeat(32);
        for good in ["a", "eu", "eu-west-1", "a1", "a--b", longest.as_str()] {
            assert_eq!(RegionName::parse(good).unwrap().as_str(), good);
        }
        assert_eq!(RegionName::parse(""), Err(RegionNameError::Empty));
        assert_eq!(RegionName::parse(&"a".repeat(33)), Err(RegionNameError::TooLong { len: 33 }));
        for bad in ["1a", "-a", "a-", "-", "Eu", "eu_west", "eu west", "eu#1", "é", "a\0"] {
            assert_eq!(RegionName::parse(bad), Err(RegionNameError::Malformed), "{bad:?}");
        }
    }

    #[test]
    fn origins_have_one_spelling() {
        for good in ["eu#0", "us-east-1#7", "a#4294967295"] {
            let origin = Origin::parse(good).unwrap();
            assert_eq!(origin.to_string(), good);
            assert_eq!(format!("{origin:?}"), good);
        }
        for bad in ["eu", "eu#", "eu#+1", "eu#01", "eu#-1", "eu#1#2", "eu# 1", "eu#4294967296", "eu#1 "] {
            assert_eq!(Origin::parse(bad), Err(OriginError::Generation), "{bad:?}");
        }
        assert_eq!(Origin::parse("#1"), Err(OriginError::Region(RegionNameError::Empty)));
        assert_eq!(Origin::parse("Eu#1"), Err(OriginError::Region(RegionNameError::Malformed)));
    }
}
