//! The region file: settings of one gateway process, and the paths of the shared files.
//!
//! Paths are relative to the file. `mod` reads what it names; `across` checks it against the ring.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use toml::de::DeValue;

use super::admin::{self, Admin};
use super::listen::{self, Listen};
use super::problems::{Need, Surroundings};
use super::provision::{self, Provision};
use super::reader::{self, At, Located, Problems, Section, Source};
use super::secret::{Names, Secret, SecretSource, database_url};
use super::upstreams;
use super::upstreams::{Named, Service};
use super::values::{
    ByRegion, by_region, check_files, host_and_port, is_host_and_port, log_filter, region_name,
};
use crate::adapters::identity::{IdentityFiles, PeerIdentity};
use crate::adapters::postgres::address::Address;
use crate::gateway::authority::failover::UpstreamHealth;
use crate::gateway::limits::quota::{Pace, Quota};
use crate::protocol::region::RegionName;

/// A region file as far as it could be read: an error in one part hides none in the others.
#[derive(Debug)]
pub(super) struct RegionFile {
    pub region: Option<Located<RegionName>>,
    pub ring: Option<Located<PathBuf>>,
    pub routes: Option<Located<PathBuf>>,
    pub credentials: Option<Located<PathBuf>>,
    pub others: Others,
    pub process: Option<Process>,
}

/// Settings about other regions, with their places, for the check against the ring.
#[derive(Debug)]
pub(super) struct Others {
    /// `[peer.addresses]`.
    pub addresses: ByRegion<String>,
    /// `[upstream.elsewhere]`.
    pub elsewhere: ByRegion<String>,
    /// True if the upstreams are shared; `None` if the file does not say.
    pub shared: Option<bool>,
    /// `[upstreams]`; `None` for one that could not be read.
    pub named: BTreeMap<Arc<str>, Located<Option<Named>>>,
    /// Place of the file, for what it lacks.
    pub file: At,
    /// True if `[listen]` has a `peer`, and its place; `None` if that table has problems.
    pub hears: Located<Option<bool>>,
    /// True if there is a `[peer]`, and the place where it should be.
    pub knows: Located<bool>,
    /// `[provision.publishers]`; `None` if there is no `[provision]`.
    pub publishers: Option<ByRegion<SecretSource>>,
}

/// The settings of one gateway process.
#[derive(Clone, Debug)]
pub struct Process {
    /// True in shadow mode: requests pass through, and decisions are only counted.
    pub shadow: bool,
    pub quota: Option<Quota>,
    pub listen: Listen,
    pub admin: Admin,
    /// Key that seals stored requests: 32 bytes as base64. Without, no credentials are stored.
    pub accept_key: Option<Secret>,
    pub store: Store,
    pub upstream: Upstream,
    pub upstreams: BTreeMap<Arc<str>, Named>,
    /// `None` in a deployment of one region.
    pub peer: Option<Peer>,
    /// Settings of `store init`; absent if another machine provisions.
    pub provision: Option<Provision>,
    pub log: Log,
    /// Collector of spans; `None` if spans are not exported.
    pub otlp: Option<Otlp>,
    /// Longest time of a graceful stop.
    pub drain: Duration,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Otlp {
    /// `http://host:port`.
    pub endpoint: String,
    /// Percentage of the traces beginning here that are recorded.
    pub sample_percent: u8,
}

/// Warning about `[otlp]` in a build that exports no spans.
pub const NO_OTLP: &str = "this onceway was built without the export of spans, so [otlp] does nothing: build it with `cargo build --release -p onceway --features jemalloc,otlp`, or remove the table";

#[derive(Clone, Debug)]
pub struct Store {
    /// Connection URL, with the gateway role.
    pub url: Secret,
    /// Most connections at once for keys.
    pub pool: usize,
    /// Generation of the store: 1, and one more each time it was replaced.
    pub generation: u32,
}

#[derive(Clone, Debug)]
pub struct Upstream {
    pub service: Service,
    /// True if any region's upstream can answer a probe about any effect.
    pub shared: bool,
    /// Addresses of other regions' upstreams, for probes.
    pub elsewhere: BTreeMap<RegionName, String>,
    /// Checks of its health; `None` if it is not checked.
    pub health: Option<UpstreamHealth>,
}

/// Settings by which a gateway and its peers know and find each other.
#[derive(Clone, Debug)]
pub struct Peer {
    pub files: IdentityFiles,
    /// `host:port` of every other region's peer listener.
    pub addresses: BTreeMap<RegionName, String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Log {
    pub format: LogFormat,
    /// Levels of the log, as `tracing_subscriber::EnvFilter` reads them.
    pub level: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    Text,
    Json,
}

/// Reads the file. Errors are added to `problems`.
pub(super) fn read(source: &Source, within: Surroundings<'_>, problems: &Problems) -> Option<RegionFile> {
    let document = source.parse(problems)?;
    let top = Section::top(source, &document, problems).within(within);
    let advice = "say which region of ring.toml this is, such as region = \"us-east\"";
    let region = top.required_located("region", advice, region_name);
    let beside = |key, advice: &str| top.required_located(key, advice, |value| top.path(value));
    let ring = beside("ring", "name the file that all regions share, such as ring = \"ring.toml\"");
    let routes = beside("routes", "name the file that all regions share, such as routes = \"routes.toml\"");
    let credentials =
        beside("credentials", "name the file of token digests, such as credentials = \"credentials.toml\"");
    let shadow = top.flag("shadow");
    let drain = top.span("drain", 1_000, 600, Duration::from_secs(25));
    let (listen, admin) = listen::read(&top);
    let hears = listen.as_ref().map(|listen| listen.peer.is_some());
    let hears = Located { at: top.at_key("listen"), value: hears };
    let admin = admin::read(&top, admin, true);
    let accept_key = top.if_there("accept", accept_key);
    let store = store(&top);
    let (upstream, elsewhere, shared) = upstream(&top);
    let named = upstreams::all(&top);
    let has_peer = top.has("peer");
    let knows = Located { at: top.at().clone(), value: has_peer };
    let (peer, addresses) = peer(&top, region.as_ref().map(|region| &region.value));
    let (provision, publishers) = top.table("provision").map(provision::read).unzip();
    let quota = top.if_there("quota", self::quota);
    let log = log(&top);
    let otlp = top.if_there("otlp", otlp);
    let whole = || -> Option<Process> {
        // A [provision] that exists must be right. Its absence is right, too.
        let provision = provision.map_or(Some(None), |written| written.map(Some))?;
        let peer = if has_peer { Some(peer?) } else { None };
        let upstreams = named.iter().map(|(name, named)| Some((name.clone(), named.value.clone()?)));
        let upstreams = upstreams.collect::<Option<_>>()?;
        Some(Process {
            shadow,
            quota: quota?,
            listen: listen?,
            admin: admin?,
            accept_key: accept_key?,
            store: store?,
            upstream: upstream?,
            upstreams,
            peer,
            provision,
            log,
            otlp: otlp?,
            drain,
        })
    };
    let process = whole();
    let file = At::file(source.path());
    let others = Others { addresses, elsewhere, shared, named, file, hears, knows, publishers };
    Some(RegionFile { region, ring, routes, credentials, others, process })
}

pub(super) fn log(top: &Section<'_>) -> Log {
    let mut log = Log { format: LogFormat::Text, level: "info".to_owned() };
    if let Some(section) = top.table("log") {
        let words = [("text", LogFormat::Text), ("json", LogFormat::Json)];
        log.format = section.optional("format", |value| reader::word(value, &words)).unwrap_or(log.format);
        let level = section.optional("level", |value| {
            let text = reader::text(value)?;
            log_filter(&text).map(|_| text)
        });
        log.level = level.unwrap_or(log.level);
    }
    log
}

/// Reads the key that seals stored requests, of `[accept]`.
fn accept_key(section: Section<'_>) -> Option<Secret> {
    const KEY: Names =
        Names::secret(["key", "key_env", "key_file"], "32 bytes as base64 (`openssl rand -base64 32`)");
    let source = SecretSource::read(&section, &KEY);
    // The message does not repeat the key, as it is a secret.
    let seals = |text: &str| match STANDARD.decode(text) {
        Ok(bytes) if bytes.len() == 32 => Ok(()),
        Ok(_) | Err(_) => {
            Err("must hold 32 bytes as base64: `openssl rand -base64 32` makes such a key".to_owned())
        }
    };
    source.and_then(|source| source.needed_to_serve(&section, &KEY, seals))
}

fn store(top: &Section<'_>) -> Option<Store> {
    const URL: Names = Names::url(["url", "url_env", "url_file"]);
    let advice = "say where the region's Postgres is: url_env, url_file or url, and pool";
    let section = top.needed("store", advice)?;
    let source = SecretSource::read(&section, &URL);
    let pool = section.optional("pool", |value| reader::number(value, 2, 1_000)).unwrap_or(16);
    let generation = section.optional("generation", |value| reader::number(value, 1, u32::MAX.into()));
    let url = source.as_ref().and_then(|source| source.needed_to_serve(&section, &URL, database_url));
    if let (Some(source), Some(url)) = (&source, &url) {
        store_files(url, &section, source.key(&URL));
    }
    Some(Store { url: url?, pool, generation: generation.unwrap_or(1) })
}

/// Checks the certificates that the store's URL names. A serving process reads them for each
/// connection, so their change is no change of its configuration.
fn store_files(url: &Secret, section: &Section<'_>, key: &'static str) {
    if section.surroundings.need == Need::Serve {
        return;
    }
    let Ok(address) = url.reveal().parse::<Address>() else { return };
    for path in address.files() {
        section.reads_later(key, path);
    }
    if section.surroundings.need.checks() {
        for why in address.wrong_files() {
            section.fail_at(key, format!("{key}: {why}"));
        }
    }
}

/// Reads `[quota]`: limits for each tenant, of which one must be written.
fn quota(section: Section<'_>) -> Option<Quota> {
    let limit = |key, most| section.optional(key, |value| up_to(value, most));
    let new_keys = limit("new_keys_per_second", 1_000_000);
    let burst = limit("burst", 1_000_000);
    let look_ups = limit("look_ups_per_second", 1_000_000);
    let misses = limit("misses_per_second", 1_000_000);
    let live_keys = limit("live_keys", 1_000_000_000);
    let any = ["new_keys_per_second", "look_ups_per_second", "misses_per_second", "live_keys"];
    if !any.iter().any(|key| section.stands(key)) {
        section.fail("limits nothing: say how many keys a tenant may start per second here, such as new_keys_per_second = 100, or look_ups_per_second, misses_per_second or live_keys");
    } else if burst.is_some() && !section.stands("new_keys_per_second") {
        section.fail_at("burst", "burst is that of new_keys_per_second, which is missing: add it");
    }
    if let (Some(new_keys), Some(look_ups)) = (new_keys, look_ups)
        && look_ups < new_keys
    {
        let why = format!(
            "look_ups_per_second {look_ups} must not be below new_keys_per_second {new_keys}: each \
             request that starts a key takes one for as long as it runs"
        );
        section.fail_at("look_ups_per_second", why);
    }
    let even = |per_second| Pace { per_second, burst: per_second };
    Some(Quota {
        new_keys: new_keys.map(|per_second| Pace { per_second, burst: burst.unwrap_or(per_second) }),
        look_ups: look_ups.map(even),
        misses: misses.map(even),
        live_keys,
    })
}

fn up_to(value: &DeValue<'_>, most: u64) -> Result<NonZeroU32, String> {
    reader::number(value, 1, most)
        .and_then(|number| NonZeroU32::new(number).ok_or("is out of range".to_owned()))
}

fn otlp(section: Section<'_>) -> Option<Otlp> {
    let advice = "say where the collector takes OTLP over HTTP, such as endpoint = \"http://127.0.0.1:4318\"";
    let endpoint = section.required("endpoint", advice, http_address);
    let percent = section.optional("sample_percent", |value| reader::number(value, 0, 100));
    Some(Otlp { endpoint: endpoint?, sample_percent: percent.unwrap_or(100) })
}

fn upstream(top: &Section<'_>) -> (Option<Upstream>, ByRegion<String>, Option<bool>) {
    let advice = "say where the protected service is: address and shared";
    let Some(section) = top.needed("upstream", advice) else {
        return (None, ByRegion::none(top.at()), None);
    };
    let advice = "say where the protected service is, such as address = \"http://127.0.0.1:7404\"";
    let address = section.required("address", advice, upstreams::address);
    let advice = "say true if any region's upstream can tell whether an effect happened anywhere, false if each knows its own only";
    let shared = section.required("shared", advice, reader::flag);
    let table = by_region(&section, "elsewhere", upstreams::address);
    let elsewhere = table.clone().values();
    let others: Vec<&str> = elsewhere.values().map(String::as_str).collect();
    let service = upstreams::service(&section, address.map(|one| vec![one]), &others);
    let health = section.table("health").and_then(upstreams::health);
    let upstream = service.zip(shared);
    let upstream = upstream.map(|(service, shared)| Upstream { service, shared, elsewhere, health });
    (upstream, table, shared)
}

fn peer(top: &Section<'_>, me: Option<&RegionName>) -> (Option<Peer>, ByRegion<String>) {
    let Some(section) = top.table("peer") else { return (None, ByRegion::none(top.at())) };
    let files = identity(&section, me, "name the region's certificate; `onceway certs` makes one");
    let addresses = by_region(&section, "addresses", host_and_port);
    (files.map(|files| Peer { files, addresses: addresses.clone().values() }), addresses)
}

/// Reads the certificate by which others know this process, with its key and authority.
pub(super) fn identity(peer: &Section<'_>, me: Option<&RegionName>, advice: &str) -> Option<IdentityFiles> {
    let certificate = peer.required_later("certificate", advice);
    let advice = "name the private key of the certificate; `onceway certs` makes one";
    let key = peer.required_later("key", advice);
    let advice = "name the certificate of the deployment's authority; `onceway certs` makes one";
    let ca = peer.required_later("ca", advice);
    let files = IdentityFiles { certificate: certificate?, key: key?, authorities: ca? };
    if let Some(me) = me {
        let keys = [("certificate", &*files.certificate), ("key", &*files.key), ("ca", &*files.authorities)];
        check_files(peer, || PeerIdentity::wrong(me, &files), &keys);
    }
    Some(files)
}

fn http_address(value: &DeValue<'_>) -> Result<String, String> {
    let text = reader::text(value)?;
    let bare = text.strip_prefix("http://").map(|rest| rest.strip_suffix('/').unwrap_or(rest));
    match bare {
        Some(rest) if is_host_and_port(rest) || is_host_and_port(&format!("{rest}:80")) => {
            Ok(format!("http://{rest}"))
        }
        Some(_) | None => {
            Err("must be http://host:port, without user, path or query (for TLS, put a proxy beside it)"
                .to_owned())
        }
    }
}
