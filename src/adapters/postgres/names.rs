//! Names inside Postgres, made from validated names only: leaves, publications, subscriptions; and the quoting of the rest.
//!
//! Neighbours: `statements` and `provision`. Region names hold `a-z`, `0-9` and `-`, so with `-` as `_` they are plain identifiers and
//! two of them never meet. It must not take a name from anywhere but these types.

use crate::protocol::region::{Origin, RegionName};

/// The most bytes that Postgres keeps of an identifier.
pub(super) const MAX_IDENTIFIER: usize = 63;

/// `onceway.records_<region>_g<generation>`.
pub(super) fn records(origin: &Origin) -> String {
    format!("onceway.records_{}", suffix(origin))
}

/// `onceway.heartbeats_<region>_g<generation>`.
pub(super) fn heartbeats(origin: &Origin) -> String {
    format!("onceway.heartbeats_{}", suffix(origin))
}

/// The index on `due_at` of an own leaf, without schema: what the reaper looks at next.
pub(super) fn due_index(origin: &Origin) -> String {
    format!("records_{}_due", suffix(origin))
}

/// The index on `held_at` of an own leaf, without schema: where the sweep looks for abandoned claims.
pub(super) fn held_index(origin: &Origin) -> String {
    format!("records_{}_held", suffix(origin))
}

/// The publication of an origin's leaves.
pub(super) fn publication(origin: &Origin) -> String {
    format!("{}{}", publication_prefix(&origin.region), origin.generation)
}

/// What the publications of all stores of a region begin with; the generation follows.
pub(super) fn publication_prefix(region: &RegionName) -> String {
    format!("onceway_{}_g", plain(region))
}

/// The subscription, and so its slot at the publisher: `sub_<subscriber>_from_<publisher>`.
pub(super) fn subscription(subscriber: &RegionName, publisher: &RegionName) -> String {
    format!("{}{}", subscription_prefix(subscriber), plain(publisher))
}

/// What all subscriptions of a region begin with; the publisher follows.
pub(super) fn subscription_prefix(subscriber: &RegionName) -> String {
    format!("sub_{}_from_", plain(subscriber))
}

/// The region whose plain name this is.
pub(super) fn region(plain: &str) -> Option<RegionName> {
    RegionName::parse(&plain.replace('_', "-")).ok()
}

/// Whether a role's name needs no quoting.
pub(super) fn is_plain_role(name: &str) -> bool {
    let mut bytes = name.bytes();
    bytes.next().is_some_and(|first| first.is_ascii_lowercase() || first == b'_')
        && bytes.all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
        && name.len() <= MAX_IDENTIFIER
}

/// A text as an SQL literal, whatever `standard_conforming_strings` says.
pub(super) fn literal(text: &str) -> String {
    let quoted = text.replace('\'', "''");
    if quoted.contains('\\') { format!("E'{}'", quoted.replace('\\', "\\\\")) } else { format!("'{quoted}'") }
}

/// Any name as an SQL identifier.
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
        for name in [heartbeats(&longest), due_index(&longest), held_index(&longest), publication(&longest)] {
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
