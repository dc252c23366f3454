//! `[upstream]` and `[upstreams.NAME]` of the region file: where a protected service is, and how it
//! is reached.
//!
//! `routes` say which requests go to a named one, `across` that it exists, `adapters::upstream`
//! does what is said here. This file must not open a connection.

use std::path::Path;
use std::time::Duration;

use http::header::{CONNECTION, CONTENT_LENGTH, EXPECT, HOST, TE, TRANSFER_ENCODING, UPGRADE};
use http::uri::Authority;
use http::{HeaderName, HeaderValue};
use rustls::pki_types::ServerName;
use toml::de::DeValue;

use super::reader::{self, At, Section};
use super::secret::{Names, Secret, SecretSource, Surroundings};
use super::values::{file, is_host_and_port};
use super::{certificates, routes};
use crate::adapters::upstream::{Base, Bounds, Host, TlsFiles};

/// A protected service.
#[derive(Clone, Debug)]
pub struct Service {
    /// Its addresses, such as `https://api.example`.
    pub addresses: Vec<String>,
    /// The `Host` header that it gets.
    pub host: Host,
    /// Bounds of its connections.
    pub bounds: Bounds,
    /// Period after which names are asked for their addresses anew.
    pub resolve_every: Duration,
    /// The files of its TLS.
    pub tls: TlsFiles,
    /// The name that its certificates must have, if not its address's.
    pub server_name: Option<String>,
    /// Our credential, if it asks for one.
    pub credential: Option<Credential>,
}

impl Service {
    /// Takes what is replaced while a process runs: certificates, and the value of the credential.
    /// They wait with an address that waits for a restart.
    pub(super) fn renew(&mut self, read: &Self) {
        let header = |service: &Self| service.credential.as_ref().map(|credential| credential.header.clone());
        let is_there = (&self.addresses, &self.server_name) == (&read.addresses, &read.server_name);
        if !is_there || header(self) != header(read) {
            return;
        }
        self.tls = read.tls.clone();
        if let (Some(now), Some(read)) = (&mut self.credential, &read.credential) {
            now.value = read.value.clone();
        }
    }
}

/// Credential that takes the place of the client's `Authorization`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credential {
    /// The header.
    pub header: HeaderName,
    /// The header's whole value.
    pub value: Secret,
}

/// A service that routes name.
#[derive(Clone, Debug)]
pub struct Named {
    /// The service.
    pub service: Service,
    /// True if any region's service of this name can answer a probe about any effect.
    pub shared: bool,
}

const VALUE: Names = Names {
    written: "value",
    variable: "value_env",
    file: "value_file",
    holds: "the header's value, such as \"Bearer sk_live_...\"",
};
const MOST_SPAN: Duration = Duration::from_secs(600);

/// Reads an address of a service.
pub(super) fn address(value: &DeValue<'_>) -> Result<String, String> {
    let text = reader::text(value)?;
    let rest = text.split_once("://").map_or("", |(_, rest)| rest.strip_suffix('/').unwrap_or(rest));
    let is_host = is_host_and_port(rest) || is_host_and_port(&format!("{rest}:80"));
    match Base::parse(&text) {
        Ok(base) if is_host => Ok(base.to_string()),
        Ok(_) | Err(_) => {
            Err("must be http://host:port or https://host:port, without user, path or query".to_owned())
        }
    }
}

/// Reads a named service. The caller finishes the section.
pub(super) fn named(section: &Section<'_>, base: &Path, surroundings: &Surroundings<'_>) -> Option<Named> {
    let advice = "say where the service is, such as addresses = [\"https://api.example.com\"]";
    let addresses = section.required("addresses", advice, |value| {
        let all = reader::list(value, address)?;
        if all.is_empty() { Err("must hold at least one address".to_owned()) } else { Ok(all) }
    });
    let shared = section.optional("shared", reader::flag).unwrap_or(false);
    Some(Named { service: service(section, addresses, &[], base, surroundings)?, shared })
}

/// Reads what every service may have beside its addresses. `others` are those of other regions.
pub(super) fn service(
    section: &Section<'_>,
    addresses: Option<Vec<String>>,
    others: &[String],
    base: &Path,
    surroundings: &Surroundings<'_>,
) -> Option<Service> {
    let defaults = Bounds::default();
    let span = |key, least: u64, most: Duration| {
        section.optional(key, |value| reader::time(value, Duration::from_millis(least), most))
    };
    let host = section.optional("host", host).unwrap_or(Host::Upstream);
    let write_idle = span("write_idle", 0, MOST_SPAN).unwrap_or(defaults.write_idle);
    let keep_idle = span("keep_idle", 0, MOST_SPAN);
    let max_age = span("max_age", 1_000, Duration::from_secs(86_400)).unwrap_or(defaults.max_age);
    let most = u64::try_from(defaults.connections).unwrap_or(u64::MAX);
    let connections = section.optional("connections", |value| reader::number(value, 1, most));
    let resolve_every = span("resolve_every", 100, MOST_SPAN).unwrap_or(Duration::from_secs(5));
    let bounds = Bounds {
        // A longer wait for writes is no use if nothing is kept for so long.
        keep_idle: keep_idle.unwrap_or(defaults.keep_idle.max(write_idle)),
        write_idle,
        max_age,
        connections: connections.and_then(|most| usize::try_from(most).ok()).unwrap_or(defaults.connections),
    };
    let bases: Vec<Base> = addresses.iter().flatten().filter_map(|text| Base::parse(text).ok()).collect();
    let is_encrypted =
        bases.iter().any(Base::is_encrypted) || others.iter().any(|other| other.starts_with("https://"));
    let (tls, server_name) = match section.table("tls") {
        Some(mut one) => {
            one.rename(below(section, "tls"));
            tls(one, addresses.is_none() || is_encrypted, base, surroundings)?
        }
        None => (TlsFiles::default(), None),
    };
    if server_name.is_none()
        && let Some(bare) = bases.iter().find(|base| base.is_encrypted() && !base.has_name())
    {
        section.fail(format!(
            "{bare} is a bare address, and a certificate names a host: write the name that it must have as server_name in its tls table"
        ));
    }
    let credential = match section.table("credentials") {
        Some(mut one) => {
            one.rename(below(section, "credentials"));
            Some(credential(one, base, surroundings)?)
        }
        None => None,
    };
    Some(Service { addresses: addresses?, host, bounds, resolve_every, tls, server_name, credential })
}

/// The name of a table below this one.
fn below(section: &Section<'_>, key: &str) -> String {
    format!("{}.{key}]", section.name().trim_end_matches(']'))
}

fn host(value: &DeValue<'_>) -> Result<Host, String> {
    let text = reader::text(value)?;
    let named = || {
        let name = text.parse::<Authority>().ok().filter(|name| !name.as_str().contains('@'))?;
        HeaderValue::from_str(name.as_str()).ok()
    };
    match text.as_str() {
        "upstream" => Ok(Host::Upstream),
        "keep" => Ok(Host::Keep),
        _ => named().map(Host::Named).ok_or_else(|| {
            "must be \"upstream\" (as its address is written), \"keep\" (the client's) or a host's name"
                .to_owned()
        }),
    }
}

fn tls(
    section: Section<'_>,
    is_used: bool,
    base: &Path,
    surroundings: &Surroundings<'_>,
) -> Option<(TlsFiles, Option<String>)> {
    let file = |key: &'static str| {
        let path = section.optional(key, |value| file(value, base))?;
        surroundings.file(&section, key, &path);
        Some(path)
    };
    let (ca, certificate, key) = (file("ca"), file("certificate"), file("key"));
    let name = |value: &DeValue<'_>| {
        let text = reader::text(value)?;
        match ServerName::try_from(text.as_str()) {
            Ok(ServerName::DnsName(_)) => Ok(text),
            Ok(_) | Err(_) => Err("must be the name of a host, such as \"api.example.com\"".to_owned()),
        }
    };
    let server_name = section.optional("server_name", name);
    let only_13 = section.optional("min", |value| reader::word(value, &[("1.2", false), ("1.3", true)]));
    let own = match (certificate, key) {
        (Some(certificate), Some(key)) => Some((certificate, key)),
        (None, None) => None,
        (Some(_), None) => {
            section.fail_at("certificate", "certificate is written without its private key: add key");
            None
        }
        (None, Some(_)) => {
            section.fail_at("key", "key is written without its certificate: add certificate");
            None
        }
    };
    let files = TlsFiles { ca, own, only_13: only_13.unwrap_or(false) };
    if !is_used && (&files, &server_name) != (&TlsFiles::default(), &None) {
        section.fail("has no effect, as no address is https://: write https://, or remove the table");
    }
    certificates::of_upstream(&section, &files, surroundings);
    section.finish();
    Some((files, server_name))
}

fn credential(section: Section<'_>, base: &Path, surroundings: &Surroundings<'_>) -> Option<Credential> {
    let header = section.optional("header", |value| {
        let text = reader::text(value)?;
        let name =
            HeaderName::try_from(text.as_str()).map_err(|_| format!("{text:?} is no header's name"))?;
        let framing = [CONNECTION, CONTENT_LENGTH, EXPECT, HOST, TE, TRANSFER_ENCODING, UPGRADE];
        if framing.contains(&name) || name == "idempotency-key" || name.as_str().starts_with("onceway-") {
            return Err(format!("{text:?} is written by this gateway itself: name another header"));
        }
        Ok(name)
    });
    let source = SecretSource::read(&section, &VALUE, base, None);
    let value = source.and_then(|source| {
        source.needed_to_serve(&section, &VALUE, surroundings, |text| {
            let right = !text.is_empty() && HeaderValue::from_str(text).is_ok();
            if right {
                Ok(())
            } else {
                Err("must hold one line of visible characters: a header's value".to_owned())
            }
        })
    });
    section.finish();
    Some(Credential { header: header.unwrap_or(http::header::AUTHORIZATION), value: value? })
}

/// Reads `[upstreams]`: all services by name.
pub(super) fn all(
    top: &Section<'_>,
    base: &Path,
    surroundings: &Surroundings<'_>,
) -> Vec<(String, At, Option<Named>)> {
    let Some(section) = top.table("upstreams") else { return Vec::new() };
    let mut all = Vec::new();
    for (key, mut one) in section.named_tables() {
        one.rename(format!("[upstreams.{key}]"));
        if let Err(why) = routes::is_name(&key) {
            one.fail(why);
        }
        let at = one.at().clone();
        let read = named(&one, base, surroundings);
        one.finish();
        all.push((key, at, read));
    }
    all
}
