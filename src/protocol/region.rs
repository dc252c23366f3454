//! Regions and origins: the names by which one part of the deployment speaks of another.
//!
//! Each name has exactly one spelling.

use std::fmt;
use std::sync::Arc;

/// A region's name: 1 to 32 of `a-z`, `0-9` and `-`, first a letter, last not `-`. Certificate
/// names, table names and metrics contain it unchanged, hence the narrow alphabet. Cheap to clone.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RegionName(Arc<str>);

/// The rule that a text breaks, so that it is no name of a region, a store or a tenant.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NameError(String);

/// Reads a name of 1 to `most` bytes. `what` says what it names, `rule` its form.
pub(super) fn read_name(
    text: &str,
    what: &str,
    most: usize,
    rule: &str,
    fits: impl Fn(&str) -> bool,
) -> Result<Arc<str>, NameError> {
    match text.len() {
        0 => Err(NameError(format!("{what} is empty: give it 1 to {most} characters"))),
        len if len > most => {
            Err(NameError(format!("{what} is {len} bytes long: at most {most} are allowed")))
        }
        _ if !fits(text) => Err(NameError(format!("{what} {rule}"))),
        _ => Ok(text.into()),
    }
}

impl RegionName {
    /// The most bytes a name has.
    pub const MAX_LEN: usize = 32;

    /// Reads a name.
    pub fn parse(text: &str) -> Result<Self, NameError> {
        let rule = "must be of a-z, 0-9 and '-', start with a letter and not end with '-'";
        let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        let fits = |text: &str| {
            let ends_well =
                text.starts_with(|first: char| first.is_ascii_lowercase()) && !text.ends_with('-');
            ends_well && text.bytes().all(allowed)
        };
        read_name(text, "a region name", Self::MAX_LEN, rule, fits).map(Self)
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

impl Origin {
    /// Reads the output of [`Display`](fmt::Display) only: each origin has one spelling.
    pub fn parse(text: &str) -> Result<Self, NameError> {
        let wrong = |why| NameError(format!("an origin must be written name#generation{why}"));
        let plain = ", the generation a number below 2^32 without sign or leading zeros";
        let (region, digits) = text.split_once('#').ok_or_else(|| wrong(plain.to_owned()))?;
        let region = RegionName::parse(region).map_err(|why| wrong(format!(": {why}")))?;
        let generation = digits.parse().ok().filter(|number: &u32| number.to_string() == digits);
        Ok(Self { region, generation: generation.ok_or_else(|| wrong(plain.to_owned()))? })
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

    /// The reason why a text names nothing begins like this.
    fn refused<T: fmt::Debug>(result: Result<T, NameError>, why: &str) {
        let error = result.unwrap_err().to_string();
        assert!(error.starts_with(why), "{error}");
    }

    #[test]
    fn names() {
        let longest = "a".repeat(32);
        for good in ["a", "eu", "eu-west-1", "a1", "a--b", longest.as_str()] {
            assert_eq!(RegionName::parse(good).unwrap().as_str(), good);
        }
        refused(RegionName::parse(""), "a region name is empty: give it 1 to 32");
        refused(RegionName::parse(&"a".repeat(33)), "a region name is 33 bytes long: at most 32");
        for bad in ["1a", "-a", "a-", "-", "Eu", "eu_west", "eu west", "eu#1", "é", "a\0"] {
            refused(RegionName::parse(bad), "a region name must be of a-z");
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
            refused(Origin::parse(bad), "an origin must be written name#generation, the generation a number");
        }
        refused(Origin::parse("#1"), "an origin must be written name#generation: a region name is empty");
        refused(Origin::parse("Eu#1"), "an origin must be written name#generation: a region name must be");
    }
}
