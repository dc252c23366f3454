//! Values that several files hold: names, addresses, levels of the log, certificates, and tables
//! whose keys are names of regions.
//!
//! `plain` has values of no meaning. `across` checks which regions a table must have.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;

use http::{HeaderName, Uri};
use toml::de::DeValue;
use tracing_subscriber::EnvFilter;

use super::problems::nearest;
use super::reader::{self, At, Located, Reads, Section};
use crate::adapters::identity::IdentityError;
use crate::protocol::key::Tenant;
use crate::protocol::region::RegionName;

pub(super) fn region_name(value: &DeValue<'_>) -> Result<RegionName, String> {
    let text = reader::text(value)?;
    RegionName::parse(&text).map_err(|error| format!("{text:?}: {error}"))
}

pub(super) fn tenant(value: &DeValue<'_>) -> Result<Tenant, String> {
    Tenant::parse(&reader::text(value)?).map_err(|error| error.to_string())
}

/// Checks the name of a deployment, of a route or of an upstream.
pub(super) fn is_name(text: &str) -> Result<(), &'static str> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    match (1..=64).contains(&text.len()) && text.bytes().all(allowed) {
        true => Ok(()),
        false => Err("must be 1 to 64 letters, digits, '-', '_' or '.'"),
    }
}

/// A path of an upstream, without its address. `must` says what else is an error.
pub(super) fn upstream_path(value: &DeValue<'_>, must: &str) -> Result<Uri, String> {
    let text = reader::text(value)?;
    let uri = text.parse::<Uri>().ok().filter(|uri| text.starts_with('/') && uri.authority().is_none());
    uri.ok_or_else(|| format!("{text:?} must be a path {must}"))
}

/// Reads the name of a header. `wrong` says what is wrong with it.
pub(super) fn header(
    text: &str,
    wrong: impl Fn(&HeaderName) -> Option<&'static str>,
) -> Result<HeaderName, String> {
    let name = HeaderName::from_bytes(text.as_bytes()).map_err(|_| format!("{text:?} is no header name"))?;
    wrong(&name).map_or(Ok(name), |why| Err(format!("{text:?} {why}")))
}

pub(super) fn socket(value: &DeValue<'_>) -> Result<SocketAddr, String> {
    let text = reader::text(value)?;
    text.parse().map_err(|_| format!("{text:?} must be an IP address and a port, such as \"127.0.0.1:7401\""))
}

pub(super) fn host_and_port(value: &DeValue<'_>) -> Result<String, String> {
    let text = reader::text(value)?;
    let wrong = format!("{text:?} must be host:port, such as \"eu-west.example.com:7403\"");
    is_host_and_port(&text).then_some(text).ok_or(wrong)
}

pub(super) fn is_host_and_port(text: &str) -> bool {
    let Some((host, port)) = text.rsplit_once(':') else { return false };
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    let host_is_right = match host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
        Some(inner) => inner.parse::<std::net::Ipv6Addr>().is_ok(),
        None => !host.is_empty() && host.bytes().all(allowed),
    };
    host_is_right && port.parse::<u16>().is_ok_and(|port| port > 0)
}

/// Names of the tables by region.
pub(super) const ADDRESSES: &str = "[peer.addresses]";
pub(super) const ELSEWHERE: &str = "[upstream.elsewhere]";
pub(super) const PUBLISHERS: &str = "[provision.publishers]";

/// A table with a value for each region.
#[derive(Clone, Debug)]
pub(super) struct ByRegion<T> {
    /// Place of the table, or the place where it should be.
    pub at: At,
    pub entries: BTreeMap<RegionName, Located<T>>,
    /// Keys that could not be read. Their problems are reported already.
    pub broken: Vec<String>,
}

impl<T> ByRegion<T> {
    /// An absent table, which should stand here.
    pub fn none(at: &At) -> Self {
        Self { at: at.clone(), entries: BTreeMap::new(), broken: Vec::new() }
    }

    /// True if the table mentions this region, with a valid value or not.
    pub fn mentions(&self, region: &RegionName) -> bool {
        self.entries.contains_key(region) || self.broken.iter().any(|key| key == region.as_str())
    }

    /// The entries without their places.
    pub fn values(self) -> BTreeMap<RegionName, T> {
        self.entries.into_iter().map(|(name, located)| (name, located.value)).collect()
    }
}

/// Reads the table `key` of `parent`.
pub(super) fn by_region<T>(parent: &Section<'_>, key: &'static str, read: impl Reads<T>) -> ByRegion<T> {
    let mut table = ByRegion::none(parent.at());
    let Some(section) = parent.table(key) else { return table };
    table.at = section.at().clone();
    let one = |key: &str, value: &DeValue<'_>| {
        let region = RegionName::parse(key).map_err(|error| error.to_string())?;
        Ok((region, read(value)?))
    };
    for (key, at, value) in section.entries(one) {
        match value {
            Some((region, value)) => drop(table.entries.insert(region, Located { at, value })),
            None => table.broken.push(key),
        }
    }
    table
}

/// In a check, reports each error that the later user of some files finds, at the key that names
/// its file. So a check reports all that a start or a reload would find, and only a check.
pub(super) fn check_files(
    section: &Section<'_>,
    wrong: impl FnOnce() -> Vec<IdentityError>,
    keys: &[(&'static str, &Path)],
) {
    if !section.surroundings.need.checks() {
        return;
    }
    for error in wrong().iter().filter(|error| !error.is_unread()) {
        if let Some((key, _)) = keys.iter().find(|(_, path)| error.path() == Some(path)) {
            section.fail_at(key, format!("{key}: {error}"));
        }
    }
}

const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

/// Reads the levels of the log, for files, for `ONCEWAY_LOG` and for a change while it runs.
///
/// A single word must be a level: the filter would take any other word for a part of the program,
/// and silence the rest. The error is one line that says what to write.
pub fn log_filter(text: &str) -> Result<EnvFilter, String> {
    let words: Vec<&str> = text.split(',').map(str::trim).filter(|word| !word.is_empty()).collect();
    let is_level = |word: &str| LEVELS.iter().any(|level| level.eq_ignore_ascii_case(word));
    let mut alone = words.iter().filter(|word| !word.contains(['=', '[']));
    if let Some(word) = alone.find(|word| !is_level(word)) {
        let advice = match nearest(word, &LEVELS) {
            Some(near) => format!("did you mean {near:?}?"),
            None => {
                let advice =
                    "write off, error, warn, info, debug or trace, or a part with its level, such as";
                format!("{advice} \"onceway=debug\"")
            }
        };
        return Err(format!("{word:?} is no level: {advice}"));
    }
    // A blank would become a letter of the part's name.
    EnvFilter::try_new(words.join(","))
        .map_err(|error| format!("{text:?}: {error}; write a level such as \"info\", or \"onceway=debug\""))
}

#[cfg(test)]
mod tests {
    use super::log_filter as filter;

    #[test]
    fn a_word_alone_is_a_level() {
        for good in
            ["info", "WARN", "off", "info,onceway::gateway=debug", "warn, onceway=trace", "[request]=debug"]
        {
            filter(good).unwrap_or_else(|why| panic!("{good}: {why}"));
        }
        assert_eq!(filter("warn, debug").unwrap().to_string(), filter("warn,debug").unwrap().to_string());
        for (bad, said) in [
            ("inof", "\"inof\" is no level: did you mean \"info\"?"),
            ("info,debgu", "\"debgu\" is no level: did you mean \"debug\"?"),
            ("loud", "\"loud\" is no level: write off, error, warn"),
            ("onceway", "\"onceway\" is no level: write off, error, warn"),
            ("onceway::gateway,info", "such as \"onceway=debug\""),
            ("onceway=loud", "\"onceway=loud\": "),
        ] {
            let error = filter(bad).unwrap_err();
            assert!(error.contains(said), "{error}");
        }
    }
}
