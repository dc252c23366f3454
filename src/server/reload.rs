//! The configuration read again while the process runs: on SIGHUP, and when one of its files
//! changed.
//!
//! The whole configuration is replaced, or nothing. Wrong files cause only a log line, a counter
//! and a status. `config` reads and checks, [`changed`] says when, `config::running` says what may
//! be replaced. A start takes its certificates from here, too. This file must not open or close a
//! listener or connection.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Result;
use rustls::ServerConfig;
use tokio::signal::unix::Signal;

use super::certificates::Expiries;
use super::peer::{PeerLimits, QUESTION_LIMIT};
use super::replaceable::Replaceable;
use super::upstreams::upstreams;
use super::{admin_door, certificates, changed, descriptors};
use crate::adapters::identity::{IdentityFiles, PeerIdentity};
use crate::adapters::postgres::login::Login;
use crate::adapters::upstream::Renewable;
use crate::config::listen::PublicLimits;
use crate::config::running::Running;
use crate::config::{Config, Watched};
use crate::gateway::credentials::operators::Operators;
use crate::gateway::instance::Gateway;
use crate::gateway::reloadable::Reload;
use crate::ports::Ports;

/// Place of the configuration, and state of its files when they were read.
#[derive(Debug)]
pub struct Files {
    pub region: PathBuf,
    /// The region file, and all files that it names.
    pub watched: Watched,
}

/// Sets the log levels from now on.
pub type Levels = Box<dyn Fn(&str) -> Result<(), String> + Send + Sync>;

/// Parts that are replaced beside the gateway.
pub(super) struct Replaced {
    /// Bounds of the public listener.
    pub public: Replaceable<PublicLimits>,
    /// Bounds of the trusted listener.
    pub trusted: Replaceable<PublicLimits>,
    /// Bounds of the peer listener.
    pub peers: Replaceable<PeerLimits>,
    /// Those whom the admin listener answers.
    pub operators: Replaceable<Operators>,
    tls: Option<Replaceable<ServerConfig>>,
    admin_tls: Option<Replaceable<ServerConfig>>,
    identity: Option<PeerIdentity>,
    upstreams: Renewable,
    store: Login,
    levels: Levels,
}

/// Valid files that were read, with their certificates.
struct Read {
    config: Config,
    tls: Option<ServerConfig>,
    admin_tls: Option<ServerConfig>,
    identity: Option<PeerIdentity>,
    upstreams: Renewable,
    expiries: Expiries,
}

impl Replaced {
    /// Makes the parts that a process starts with.
    pub fn new(
        config: &Config,
        (tls, admin_tls): (Option<Replaceable<ServerConfig>>, Option<Replaceable<ServerConfig>>),
        identity: Option<PeerIdentity>,
        upstreams: Renewable,
        store: Login,
        levels: Levels,
    ) -> Self {
        Self {
            public: config.process.listen.limits.into(),
            trusted: trusted(config).into(),
            peers: peer_limits(config).into(),
            operators: config.process.admin.operators().into(),
            tls,
            admin_tls,
            identity,
            upstreams,
            store,
            levels,
        }
    }

    fn take(
        &self,
        config: &Config,
        tls: [Option<ServerConfig>; 2],
        newer: Option<&PeerIdentity>,
        upstreams: &Renewable,
    ) {
        self.public.replace(config.process.listen.limits);
        self.trusted.replace(trusted(config));
        self.peers.replace(peer_limits(config));
        self.operators.replace(config.process.admin.operators());
        for (before, after) in [&self.tls, &self.admin_tls].into_iter().zip(tls) {
            if let (Some(before), Some(after)) = (before, after) {
                before.replace(after);
            }
        }
        if let (Some(before), Some(newer)) = (&self.identity, newer) {
            before.renew(newer);
        }
        self.upstreams.renew(upstreams);
        // It was checked to be an address.
        if let Ok(address) = config.process.store.url.reveal().parse() {
            self.store.renew(address);
        }
        if let Err(why) = (self.levels)(&config.process.log.level) {
            tracing::error!(why, "what is logged stays as it was");
        }
    }
}

fn trusted(config: &Config) -> PublicLimits {
    // The front is one address, or a few.
    let bounds = config.process.listen.limits;
    PublicLimits { connections_per_ip: bounds.connections, ..bounds }
}

/// Bounds of peers' messages: the largest body of any keyed route, and the largest answer that a
/// route keeps, lodged as base64.
fn peer_limits(config: &Config) -> PeerLimits {
    let body_limit = config.shared.routes.policies().map(|policy| policy.body_limit).max().unwrap_or(0);
    let stored = config.shared.routes.policies().map(|policy| policy.stored_limit).max().unwrap_or(0);
    let question_limit = QUESTION_LIMIT + stored.div_ceil(3) * 4;
    PeerLimits { body_limit, question_limit, ..PeerLimits::default() }
}

/// The identity that peers know this process by; `None` in a deployment of one region.
pub(super) fn identity(config: &Config) -> Result<Option<PeerIdentity>> {
    let Some(files) = &config.process.peer else { return Ok(None) };
    let files = IdentityFiles {
        certificate: files.certificate.clone(),
        key: files.key.clone(),
        authorities: files.ca.clone(),
    };
    Ok(Some(PeerIdentity::load(config.me.clone(), &files)?))
}

/// TLS settings for clients, if there are any.
pub(super) fn clients_tls(config: &Config) -> Result<Option<ServerConfig>> {
    admin_door::loaded(config.process.listen.tls.as_ref(), "[listen.tls]")
}

/// Runs as long as it is polled.
pub(super) async fn watch<P: Ports>(
    gateway: Arc<Gateway<P>>,
    running: Arc<Mutex<Running>>,
    mut files: Files,
    replaced: Replaced,
    mut hangup: Signal,
) {
    let read = move || {
        let (config, watched) = Config::load_watched(&files.region);
        (config.map_err(changed::lines).and_then(certified), watched)
    };
    while let Some(read) = changed::next(&mut files.watched, &mut hangup, read.clone()).await {
        match read {
            Ok(read) => {
                gateway.agree_on_lives(&read.config.shared.routes).await;
                take(&gateway, &running, &replaced, *read);
            }
            Err(problems) => gateway.reload_failed(problems),
        }
    }
}

fn certified(config: Config) -> Result<Box<Read>, Vec<String>> {
    let said = |error: anyhow::Error| vec![format!("{error:#}")];
    let tls = clients_tls(&config).map_err(said)?;
    let admin_tls = admin_door::tls(&config.process.admin).map_err(said)?;
    let identity = identity(&config).map_err(said)?;
    let upstreams = upstreams(&config).map_err(said)?.renewable();
    let expiries = certificates::look(&config);
    Ok(Box::new(Read { config, tls, admin_tls, identity, upstreams, expiries }))
}

fn take<P: Ports>(gateway: &Gateway<P>, running: &Mutex<Running>, replaced: &Replaced, read: Read) {
    let Read { config, tls, admin_tls, identity, upstreams, expiries } = read;
    let mut running = running.lock().unwrap_or_else(PoisonError::into_inner);
    let ring = config.shared.ring.digest();
    if ring != running.config().shared.ring.digest() {
        tracing::info!(
            "ring.toml proposes another ring than this process started with: `onceway ring plan` says what it would move"
        );
    }
    let (next, restart) = running.adopt(config);
    *running = next;
    let config = running.config();
    replaced.take(config, [tls, admin_tls], identity.as_ref(), &upstreams);
    expiries.show();
    descriptors::for_gateway(config);
    changed::taken(&restart);
    gateway.reload(Reload { restart, ..config.settings().live });
}
