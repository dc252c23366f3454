//! Names inside Postgres, made from validated names only: leaves, publications, subscriptions; and
//! quoting of other texts.
//!
//! Region names hold `a-z`, `0-9` and `-`. With `_` for `-` they are plain identifiers, and no two
//! of them become equal. This file must not take a name from anywhere but these types.

use crate::protocol::region::{Origin, RegionName};

/// Most bytes that Postgres keeps of an identifier.
pub(super) const MAX_IDENTIFIER: usize = 63;

pub(super) fn records(origin: &Origin) -> String {
    format!("onceway.records_{}", suffix(origin))
}

pub(super) fn heartbeats(origin: &Origin) -> String {
    format!("onceway.heartbeats_{}", suffix(origin))
}

/// The index on `due_ms` or `held_ms` of an own leaf, without schema: reaper and sweep read it.
pub(super) fn index(origin: &Origin, on: &str) -> String {
    format!("records_{}_{on}", suffix(origin))
}

pub(super) fn publication(origin: &Origin) -> String {
    format!("{}{}", publication_prefix(&origin.region), origin.generation)
}

/// Beginning of the names of all publications of a region's stores. The generation follows.
pub(super) fn publication_prefix(region: &RegionName) -> String {
    format!("onceway_{}_g", plain(region))
}

/// The subscription, and so its slot at the publisher: `sub_<subscriber>_from_<publisher>`.
pub(super) fn subscription(subscriber: &RegionName, publisher: &RegionName) -> String {
    format!("{}{}", subscription_prefix(subscriber), plain(publisher))
}

/// Beginning of the names of all subscriptions of a region. The publisher follows.
pub(super) fn subscription_prefix(subscriber: &RegionName) -> String {
    format!("sub_{}_from_", plain(subscriber))
}

pub(super) fn region(plain: &str) -> Option<RegionName> {
    RegionName::parse(&plain.replace('_', "-")).ok()
}

/// True if a role's name needs no quoting.
pub(super) fn is_plain_role(name: &str) -> bool {
    let mut bytes = name.bytes();
    bytes.next().is_some_and(|first| first.is_ascii_lowercase() || first == b'_')
        && bytes.all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
        && name.len() <= MAX_IDENTIFIER
}

/// A text as an SQL literal that is right for both values of `standard_conforming_strings`.
pub(super) fn literal(text: &str) -> String {
    let quoted = text.replace('\'', "''");
    if quoted.contains('\\') { format!("E'{}'", quoted.replace('\\', "\\\\")) } else { format!("'{quoted}'") }
}

pub(super) fn identifier(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

fn suffix(origin: &Origin) -> String {
    format!("{}_g{}", plain(&origin.region), origin.generation)
}

fn plain(region: &RegionName) -> String {
    region.as_str().replace('-', "_")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_regions_become_identifiers_and_back() {
        let eu = Origin::parse("eu-west-1#2").unwrap();
        assert_eq!(records(&eu), "onceway.records_eu_west_1_g2");
        assert_eq!(publication(&eu), "onceway_eu_west_1_g2");
        let us = RegionName::parse("us").unwrap();
        let name = subscription(&us, &eu.region);
        assert_eq!(name, "sub_us_from_eu_west_1");
        assert_eq!(name.strip_prefix(&subscription_prefix(&us)).and_then(region), Some(eu.region));
        let longest = Origin::parse(&format!("{}#4294967295", "a".repeat(32))).unwrap();
        for name in [heartbeats(&longest), index(&longest, "held"), publication(&longest)] {
            assert!(name.trim_start_matches("onceway.").len() <= MAX_IDENTIFIER, "{name}");
        }
    }

    #[test]
    fn quoting_leaves_nothing_open() {
        assert_eq!(literal("it's"), "'it''s'");
        assert_eq!(literal(r"a\' or"), r"E'a\\'' or'");
        assert_eq!(identifier(r#"a"b"#), r#""a""b""#);
        for bad in ["", "1a", "A", "a-b", "a b", "a\"b", "é"] {
            assert!(!is_plain_role(bad), "{bad:?}");
        }
        assert!(is_plain_role("onceway_gateway"));
    }
}
