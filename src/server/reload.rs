//! The configuration read again: on SIGHUP, and when one of its files changed.
//!
//! The whole configuration is replaced, or nothing. Wrong files cause only a log line, a counter
//! and a status. A start takes its certificates and upstreams from here, too.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use anyhow::{Context, Result};
use http::HeaderValue;
use rustls::ServerConfig;
use rustls::pki_types::ServerName;
use tokio::signal::unix::Signal;

use super::certificates::Expiries;
use super::changed::Files;
use super::peer::{PeerLimits, QUESTION_LIMIT};
use super::{Gateway, Replaceable, admin_door, certificates, changed, descriptors, locked};
use crate::adapters::identity::PeerIdentity;
use crate::adapters::postgres::login::Login;
use crate::adapters::upstream::{self, Base, Renewable, ServiceSettings, Tls, UpstreamSettings};
use crate::config::Config;
use crate::config::listen::PublicLimits;
use crate::config::region::Process;
use crate::config::upstreams::{Credential, Service};
use crate::gateway::credentials::operators::Operators;
use crate::gateway::reloadable::Reload;

/// Sets the log levels from now on.
pub type Levels = Box<dyn Fn(&str) -> Result<(), String> + Send + Sync>;

/// Parts that are replaced beside the gateway.
pub(super) struct Replaced {
    /// Bounds of the public and of the trusted listener.
    pub public: Replaceable<PublicLimits>,
    pub peers: Replaceable<PeerLimits>,
    pub operators: Replaceable<Operators>,
    /// TLS of the public and of the admin listener.
    pub tls: [Option<Replaceable<ServerConfig>>; 2],
    pub identity: Option<PeerIdentity>,
    upstreams: Renewable,
    store: Login,
    levels: Levels,
}

/// All that a start and a reload read from the files that the configuration names.
pub(super) struct Certified {
    pub identity: Option<PeerIdentity>,
    /// TLS of the public and of the admin listener.
    pub tls: [Option<ServerConfig>; 2],
    /// The upstreams, with the certificates and credentials of now.
    pub upstreams: UpstreamSettings,
    pub expiries: Expiries,
}

impl Certified {
    /// Blocks: it reads the files.
    pub fn read(config: &Config) -> Result<Self> {
        let Process { peer, listen, admin, .. } = &config.process;
        let identity = peer.as_ref().map(|peer| PeerIdentity::load(config.me.clone(), &peer.files));
        Ok(Self {
            identity: identity.transpose()?,
            tls: [admin_door::loaded(listen.tls.as_ref(), "[listen.tls]")?, admin_door::tls(admin)?],
            upstreams: upstreams(config)?,
            expiries: certificates::look(config),
        })
    }
}

impl Replaced {
    pub fn new(config: &Config, read: Certified, store: Login, levels: Levels) -> Self {
        Self {
            public: config.process.listen.limits.into(),
            peers: peer_limits(config).into(),
            operators: config.process.admin.operators().into(),
            tls: read.tls.map(|tls| tls.map(Replaceable::from)),
            identity: read.identity,
            upstreams: read.upstreams.renewable(),
            store,
            levels,
        }
    }

    fn take(&self, config: &Config, read: Certified) {
        self.public.replace(config.process.listen.limits);
        self.peers.replace(peer_limits(config));
        self.operators.replace(config.process.admin.operators());
        for (before, after) in self.tls.iter().zip(read.tls) {
            if let (Some(before), Some(after)) = (before, after) {
                before.replace(after);
            }
        }
        if let (Some(before), Some(newer)) = (&self.identity, &read.identity) {
            before.renew(newer);
        }
        self.upstreams.renew(&read.upstreams.renewable());
        // It was checked to be an address.
        if let Ok(address) = config.process.store.url.reveal().parse() {
            self.store.renew(address);
        }
        if let Err(why) = (self.levels)(&config.process.log.level) {
            tracing::error!(why, "what is logged stays as it was");
        }
        read.expiries.show();
    }
}

/// Bounds of peers' messages: the largest body, and the largest kept answer as base64.
fn peer_limits(config: &Config) -> PeerLimits {
    let body_limit = config.shared.routes.policies().map(|policy| policy.body_limit).max().unwrap_or(0);
    let stored = config.shared.routes.policies().map(|policy| policy.stored_limit).max().unwrap_or(0);
    let question_limit = QUESTION_LIMIT + stored.div_ceil(3) * 4;
    PeerLimits { body_limit, question_limit, ..PeerLimits::default() }
}

fn upstreams(config: &Config) -> Result<UpstreamSettings> {
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
pub(super) async fn watch(
    gateway: Arc<Gateway>,
    running: Arc<Mutex<Config>>,
    mut files: Files,
    replaced: Replaced,
    mut hangup: Signal,
) {
    while let Some(read) = changed::next(&mut files, &mut hangup, Config::load_watched, Certified::read).await
    {
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
                replaced.take(config, read);
                descriptors::for_gateway(config);
                changed::taken(&restart);
                gateway.reload(Reload { restart, ..config.settings().live });
            }
            Err(problems) => gateway.reload_failed(problems),
        }
    }
}
