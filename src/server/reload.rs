//! The configuration read again: on SIGHUP, and when one of its files changed.
//!
//! The whole configuration is replaced, or nothing. Wrong files cause only a log line, a counter
//! and a status. A start takes its certificates and upstreams from here, too.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use anyhow::{Context, Result};
use http::HeaderValue;
use rustls::ServerConfig;
use rustls::pki_types::ServerName;
use tokio::signal::unix::Signal;

use super::certificates::Expiries;
use super::peer::{PeerLimits, QUESTION_LIMIT};
use super::{Replaceable, admin_door, certificates, changed, descriptors, locked};
use crate::adapters::identity::PeerIdentity;
use crate::adapters::postgres::login::Login;
use crate::adapters::upstream::{self, Base, Renewable, ServiceSettings, Tls, UpstreamSettings};
use crate::config::listen::PublicLimits;
use crate::config::region::Process;
use crate::config::upstreams::{Credential, Service};
use crate::config::{Config, Watched};
use crate::gateway::credentials::operators::Operators;
use crate::gateway::instance::Gateway;
use crate::gateway::reloadable::Reload;
use crate::ports::Ports;

/// Place of a gateway's or witness's configuration, and state of its files when they were read.
#[derive(Debug)]
pub struct Files {
    /// The region file, or the witness file.
    pub file: PathBuf,
    /// That file, and all files that it names.
    pub watched: Watched,
}

/// Sets the log levels from now on.
pub type Levels = Box<dyn Fn(&str) -> Result<(), String> + Send + Sync>;

/// Parts that are replaced beside the gateway.
pub(super) struct Replaced {
    /// Bounds of the public and of the trusted listener.
    pub public: Replaceable<PublicLimits>,
    pub peers: Replaceable<PeerLimits>,
    pub operators: Replaceable<Operators>,
    /// TLS of the public and of the admin listener.
    tls: [Option<Replaceable<ServerConfig>>; 2],
    identity: Option<PeerIdentity>,
    upstreams: Renewable,
    store: Login,
    levels: Levels,
}

struct Certified {
    tls: [Option<ServerConfig>; 2],
    identity: Option<PeerIdentity>,
    upstreams: Renewable,
    expiries: Expiries,
}

impl Replaced {
    pub fn new(
        config: &Config,
        tls: [Option<Replaceable<ServerConfig>>; 2],
        identity: Option<PeerIdentity>,
        upstreams: Renewable,
        store: Login,
        levels: Levels,
    ) -> Self {
        Self {
            public: config.process.listen.limits.into(),
            peers: peer_limits(config).into(),
            operators: config.process.admin.operators().into(),
            tls,
            identity,
            upstreams,
            store,
            levels,
        }
    }

    fn take(&self, config: &Config, read: Certified) {
        let Certified { tls, identity, upstreams, expiries } = read;
        self.public.replace(config.process.listen.limits);
        self.peers.replace(peer_limits(config));
        self.operators.replace(config.process.admin.operators());
        for (before, after) in self.tls.iter().zip(tls) {
            if let (Some(before), Some(after)) = (before, after) {
                before.replace(after);
            }
        }
        if let (Some(before), Some(newer)) = (&self.identity, &identity) {
            before.renew(newer);
        }
        self.upstreams.renew(&upstreams);
        // It was checked to be an address.
        if let Ok(address) = config.process.store.url.reveal().parse() {
            self.store.renew(address);
        }
        if let Err(why) = (self.levels)(&config.process.log.level) {
            tracing::error!(why, "what is logged stays as it was");
        }
        expiries.show();
    }
}

/// Bounds of peers' messages: the largest body, and the largest kept answer as base64.
fn peer_limits(config: &Config) -> PeerLimits {
    let body_limit = config.shared.routes.policies().map(|policy| policy.body_limit).max().unwrap_or(0);
    let stored = config.shared.routes.policies().map(|policy| policy.stored_limit).max().unwrap_or(0);
    let question_limit = QUESTION_LIMIT + stored.div_ceil(3) * 4;
    PeerLimits { body_limit, question_limit, ..PeerLimits::default() }
}

/// The identity that peers know this process by; `None` in a deployment of one region.
pub(super) fn identity(config: &Config) -> Result<Option<PeerIdentity>> {
    let Some(peer) = &config.process.peer else { return Ok(None) };
    Ok(Some(PeerIdentity::load(config.me.clone(), &peer.files)?))
}

pub(super) fn clients_tls(config: &Config) -> Result<Option<ServerConfig>> {
    admin_door::loaded(config.process.listen.tls.as_ref(), "[listen.tls]")
}

/// The upstreams, with the certificates and credentials of now.
pub(super) fn upstreams(config: &Config) -> Result<UpstreamSettings> {
    let Process { upstream, upstreams, .. } = &config.process;
    let others =
        upstream.elsewhere.iter().map(|(region, address)| Ok((region.clone(), Base::parse(address)?)));
    let others = others.collect::<Result<_>>()?;
    let mut named = BTreeMap::new();
    for (name, one) in upstreams {
        let settings = service(&one.service).with_context(|| format!("[upstreams.{name}]"))?;
        named.insert(name.clone(), (settings, one.shared));
    }
    let own = service(&upstream.service).context("[upstream]")?;
    Ok(UpstreamSettings { me: config.me.clone(), own, shared: upstream.shared, others, named })
}

fn service(service: &Service) -> Result<ServiceSettings> {
    let Service { addresses, host, bounds, resolve_every, tls, server_name, credential } = service;
    let credential = credential.as_ref().map(|Credential { header, value }| {
        // The error would quote the value.
        let value =
            HeaderValue::from_str(value.reveal()).ok().context("credentials are no header's value")?;
        Ok::<_, anyhow::Error>(Arc::new(upstream::Credential::new(header.clone(), value)))
    });
    let credential = credential.transpose()?;
    Ok(ServiceSettings {
        addresses: addresses.iter().map(|text| Base::parse(text)).collect::<Result<_, _>>()?,
        host: host.clone(),
        bounds: bounds.clone(),
        resolve_every: *resolve_every,
        server_name: server_name.clone().map(ServerName::try_from).transpose()?,
        tls: Arc::new(Tls::load(tls)?),
        credential,
    })
}

/// Runs as long as it is polled.
pub(super) async fn watch<P: Ports>(
    gateway: Arc<Gateway<P>>,
    running: Arc<Mutex<Config>>,
    mut files: Files,
    replaced: Replaced,
    mut hangup: Signal,
) {
    let read = move || {
        let (config, watched) = Config::load_watched(&files.file);
        (config.map_err(changed::lines).and_then(certified), watched)
    };
    while let Some(read) = changed::next(&mut files.watched, &mut hangup, read.clone()).await {
        match read {
            Ok((config, read)) => {
                gateway.agree_on_lives(&config.shared.routes).await;
                let mut running = locked(&running);
                let ring = config.shared.ring.digest();
                if ring != running.shared.ring.digest() {
                    tracing::info!(
                        "ring.toml proposes another ring than this process started with: `onceway ring plan` says what it would move"
                    );
                }
                let (next, restart) = running.adopt(config);
                *running = next;
                let config = &*running;
                replaced.take(config, *read);
                descriptors::for_gateway(config);
                changed::taken(&restart);
                gateway.reload(Reload { restart, ..config.settings().live });
            }
            Err(problems) => gateway.reload_failed(problems),
        }
    }
}

fn certified(config: Config) -> Result<(Config, Box<Certified>), Vec<String>> {
    let read = || -> Result<Certified> {
        Ok(Certified {
            tls: [clients_tls(&config)?, admin_door::tls(&config.process.admin)?],
            identity: identity(&config)?,
            upstreams: upstreams(&config)?.renewable(),
            expiries: certificates::look(&config),
        })
    };
    let read = read().map_err(|error| vec![format!("{error:#}")])?;
    Ok((config, Box::new(read)))
}
