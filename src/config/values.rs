//! Values that several files hold: names of regions and tenants, paths, addresses.
//!
//! `reader` has values of no meaning, such as numbers. This file must not know a key, nor look for
//! the thing that a value names.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use toml::de::DeValue;

use super::reader;
use crate::protocol::key::Tenant;
use crate::protocol::region::RegionName;

pub(super) fn region_name(value: &DeValue<'_>) -> Result<RegionName, String> {
    let text = reader::text(value)?;
    RegionName::parse(&text).map_err(|error| format!("{text:?}: {error}"))
}

pub(super) fn tenant(value: &DeValue<'_>) -> Result<Tenant, String> {
    Tenant::parse(&reader::text(value)?).map_err(|error| error.to_string())
}

/// A path, relative to the file that names it.
pub(super) fn file(value: &DeValue<'_>, base: &Path) -> Result<PathBuf, String> {
    reader::text(value).map(|text| base.join(text))
}

pub(super) fn socket(value: &DeValue<'_>) -> Result<SocketAddr, String> {
    let text = reader::text(value)?;
    text.parse().map_err(|_| format!("{text:?} must be an IP address and a port, such as \"127.0.0.1:7401\""))
}

pub(super) fn host_and_port(value: &DeValue<'_>) -> Result<String, String> {
    let text = reader::text(value)?;
    match is_host_and_port(&text) {
        true => Ok(text),
        false => Err(format!("{text:?} must be host:port, such as \"eu-west.example.com:7403\"")),
    }
}

pub(super) fn is_host_and_port(text: &str) -> bool {
    let Some((host, port)) = text.rsplit_once(':') else { return false };
    let host_is_right = match host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
        Some(inner) => inner.parse::<std::net::Ipv6Addr>().is_ok(),
        None => {
            !host.is_empty()
                && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte))
        }
    };
    host_is_right && port.parse::<u16>().is_ok_and(|port| port > 0)
}
