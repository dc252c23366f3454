//! `[upstream]` and `[upstreams.NAME]` of the region file: where a protected service is, how it is
//! reached, and when it counts as sick.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use http::header::{CONNECTION, CONTENT_LENGTH, EXPECT, HOST, TE, TRANSFER_ENCODING, UPGRADE};
use http::uri::Authority;
use http::{HeaderName, HeaderValue};
use rustls::pki_types::ServerName;
use toml::de::DeValue;

use super::reader::{self, Located, Section};
use super::secret::{Names, Secret, SecretSource};
use super::span::show;
use super::values::{check_files, is_host_and_port, is_name, upstream_path};
use crate::adapters::upstream::{Base, Bounds, Host, Tls, TlsFiles};
use crate::gateway::authority::failover::UpstreamHealth;

#[derive(Clone, Debug)]
pub struct Service {
    /// Its addresses, such as `https://api.example`.
    pub addresses: Vec<String>,
    /// The `Host` header that it gets.
    pub host: Host,
    pub bounds: Bounds,
    /// Period after which names are asked for their addresses anew.
    pub resolve_every: Duration,
    pub tls: TlsFiles,
    /// The name that its certificates must have, if not its address's.
    pub server_name: Option<String>,
    /// Our credential, if it asks for one.
    pub credential: Option<Credential>,
}

impl Service {
    pub(super) fn header(&self) -> Option<&HeaderName> {
        self.credential.as_ref().map(|credential| &credential.header)
    }

    /// Takes certificates and the credential's value over, unless the address waits for a restart.
    pub(super) fn renew(&mut self, read: &Self) {
        let is_there = (&self.addresses, &self.server_name) == (&read.addresses, &read.server_name);
        if !is_there || self.header() != read.header() {
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
    pub header: HeaderName,
    pub value: Secret,
}

#[derive(Clone, Debug)]
pub struct Named {
    pub service: Service,
    /// True if any region's service of this name can answer a probe about any effect.
    pub shared: bool,
}

const MOST_IDLE: u64 = 600;

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

fn named(section: &Section<'_>) -> Option<Named> {
    let advice = "say where the service is, such as addresses = [\"https://api.example.com\"]";
    let addresses = section
        .required("addresses", advice, |value| reader::some(value, "hold at least one address", address));
    let shared = section.flag("shared");
    Some(Named { service: service(section, addresses, &[])?, shared })
}

/// Reads what every service may have beside its addresses. `others` are those of other regions.
pub(super) fn service(
    section: &Section<'_>,
    addresses: Option<Vec<String>>,
    others: &[&str],
) -> Option<Service> {
    let defaults = Bounds::default();
    let host = section.optional("host", host).unwrap_or(Host::Upstream);
    let write_idle = section.span("write_idle", 0, MOST_IDLE, defaults.write_idle);
    // A longer wait for writes is no use if nothing is kept for so long.
    let keep_idle = section.span("keep_idle", 0, MOST_IDLE, defaults.keep_idle.max(write_idle));
    let max_age = section.span("max_age", 1_000, 86_400, defaults.max_age);
    let most = u64::try_from(defaults.connections).unwrap_or(u64::MAX);
    let connections = section.optional("connections", |value| reader::number(value, 1, most));
    let connections = connections.unwrap_or(defaults.connections);
    let resolve_every = section.span("resolve_every", 100, MOST_IDLE, Duration::from_secs(5));
    let bounds = Bounds { keep_idle, write_idle, max_age, connections };
    let bases: Vec<Base> = addresses.iter().flatten().filter_map(|text| Base::parse(text).ok()).collect();
    let is_encrypted =
        bases.iter().any(Base::is_encrypted) || others.iter().any(|other| other.starts_with("https://"));
    let (tls, server_name) = match section.table("tls") {
        Some(one) => tls(one, addresses.is_none() || is_encrypted)?,
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
        Some(one) => Some(credential(one)?),
        None => None,
    };
    Some(Service { addresses: addresses?, host, bounds, resolve_every, tls, server_name, credential })
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

fn tls(section: Section<'_>, is_used: bool) -> Option<(TlsFiles, Option<String>)> {
    let (ca, certificate, key) = (section.later("ca"), section.later("certificate"), section.later("key"));
    let name = |value: &DeValue<'_>| {
        let text = reader::text(value)?;
        match ServerName::try_from(text.as_str()) {
            Ok(ServerName::DnsName(_)) => Ok(text),
            Ok(_) | Err(_) => Err("must be the name of a host, such as \"api.example.com\"".to_owned()),
        }
    };
    let server_name = section.optional("server_name", name);
    let only_13 = section.optional("min", |value| reader::word(value, &[("1.2", false), ("1.3", true)]));
    match (&certificate, &key) {
        (Some(_), None) => {
            section.fail_at("certificate", "certificate is written without its private key: add key");
        }
        (None, Some(_)) => {
            section.fail_at("key", "key is written without its certificate: add certificate");
        }
        (Some(_), Some(_)) | (None, None) => {}
    }
    let files = TlsFiles { ca, own: certificate.zip(key), only_13: only_13.unwrap_or(false) };
    if !is_used && (&files, &server_name) != (&TlsFiles::default(), &None) {
        section.fail("has no effect, as no address is https://: write https://, or remove the table");
    }
    let own =
        files.own.iter().flat_map(|(certificate, key)| [("certificate", &**certificate), ("key", &**key)]);
    let keys: Vec<(&'static str, &Path)> = own.chain(files.ca.as_deref().map(|ca| ("ca", ca))).collect();
    check_files(&section, || Tls::load(&files).err().into_iter().collect(), &keys);
    Some((files, server_name))
}

fn credential(section: Section<'_>) -> Option<Credential> {
    const VALUE: Names = Names::secret(
        ["value", "value_env", "value_file"],
        "the header's value, such as \"Bearer sk_live_...\"",
    );
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
    let right = |text: &str| match !text.is_empty() && HeaderValue::from_str(text).is_ok() {
        true => Ok(()),
        false => Err("must hold one line of visible characters: a header's value".to_owned()),
    };
    let source = SecretSource::read(&section, &VALUE);
    let value = source.and_then(|source| source.needed_to_serve(&section, &VALUE, right));
    Some(Credential { header: header.unwrap_or(http::header::AUTHORIZATION), value: value? })
}

/// Reads `[upstreams]`: all services by name.
pub(super) fn all(top: &Section<'_>) -> BTreeMap<Arc<str>, Located<Option<Named>>> {
    let mut all = BTreeMap::new();
    let Some(section) = top.table("upstreams") else { return all };
    for (key, one) in section.named_tables() {
        if let Err(why) = is_name(key) {
            one.fail(format!("{key:?} {why}"));
        }
        all.insert(key.into(), Located { at: one.at().clone(), value: named(&one) });
    }
    all
}

/// Reads `[upstream.health]`: the health check, and the sickness that asks for a drain.
pub(super) fn health(section: Section<'_>) -> Option<UpstreamHealth> {
    let advice =
        "name a path of the upstream that answers 200 to 399 while it is well, such as path = \"/healthz\"";
    let path = section
        .required("path", advice, |value| upstream_path(value, "on the upstream, such as \"/healthz\""));
    let every = section.span("every", 100, 60, Duration::from_secs(2));
    let within = section.span("within", 100, 60, Duration::from_secs(1));
    let sick_after = section.span("sick_after", 100, 3_600, Duration::from_secs(15));
    let cool_down = section.span("cool_down", 100, 86_400, Duration::from_secs(300));
    // One late answer must not move a region's keys.
    if sick_after < (every + within) * 2 {
        let [sick_after, every, within] = [sick_after, every, within].map(show);
        let why = format!(
            "sick_after {sick_after} must be at least two checks long (every {every} and within {within}, \
             twice): lengthen it"
        );
        section.fail_at("sick_after", why);
    }
    path.map(|path| UpstreamHealth { path, every, within, sick_after, cool_down })
}
