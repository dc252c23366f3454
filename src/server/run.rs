//! One gateway process, from checked configuration to the last answer.
//!
//! No port is bound before everything is valid. On SIGTERM or SIGINT the gateway refuses new keyed
//! requests, running ones finish, then the listeners close. On SIGHUP, and after a change, the
//! files are read again (`reload`).

use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context, Result};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::{Request, Response};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::timeout;
use tracing::Instrument;

use super::admin::{self, Admin};
use super::changed::Files;
use super::heads::Heads;
use super::listener_kind::Door;
use super::peer;
use super::reload::{self, Certified, Levels, Replaced};
use super::{
    Gateway, Listeners, PeerService, PublicService, certificates, descriptors, locked, public, spans,
};
use crate::adapters::RealPorts;
use crate::adapters::peers::HttpPeers;
use crate::adapters::postgres::login::Login;
use crate::adapters::postgres::provision::is_superuser;
use crate::adapters::postgres::sealing::Sealer;
use crate::adapters::postgres::{PgStore, StoreConfig};
use crate::adapters::system::{SystemClock, SystemDice};
use crate::adapters::upstream::HttpUpstream;
use crate::config::Config;
use crate::gateway::limits::concurrency::Place;
use crate::gateway::settings::Settings;
use crate::ports::peers::{Forward, ForwardReply, PeerMessage, PeerReply, Pong, Question};
use crate::ports::{Body, observe};
use crate::protocol::region::{Origin, RegionName};
use crate::protocol::versions::Versions;

/// Longest time for what runs and for connections to finish after a loop died.
const LEAVE_WITHIN: Duration = Duration::from_millis(500);
/// Time between two looks at a store that does not answer.
const AGAIN: Duration = Duration::from_secs(5);
/// Time between two tries to found the register.
const FOUND_EVERY: Duration = Duration::from_millis(200);
/// Longest time for connections to finish after the last request was answered.
pub(super) const CLOSE_WITHIN: Duration = Duration::from_secs(2);
/// Pause between two times at which new samples of histograms are counted.
const COUNT_EVERY: Duration = Duration::from_secs(5);

/// A loop of the gateway died, so the process has left.
#[derive(Debug, thiserror::Error)]
#[error("the loop `{0}` died: the log says why; start the gateway again, and report it")]
pub struct LoopDied(&'static str);

struct Service(Arc<Gateway>, Arc<Admin>);

impl PublicService for Service {
    async fn call(self: Arc<Self>, mut request: Request<Body>) -> Response<Body> {
        let span = spans::request("request", request.headers_mut());
        self.0.handle(request).instrument(span).await
    }
}

impl PeerService for Service {
    type Place = Place;

    fn hears(&self, from: &RegionName, said: &PeerMessage<'_>) -> Result<(), String> {
        self.0.hears(from, said)
    }

    fn place(&self, head: &Forward, bytes: usize) -> Result<Place, Box<ForwardReply>> {
        self.0.place_for_forward(head, bytes)
    }

    async fn forward(self: Arc<Self>, from: RegionName, mut forward: Forward, place: Place) -> ForwardReply {
        let span = spans::request("forwarded request", &mut forward.headers);
        self.0.serve_forward(from, forward, place).instrument(span).await
    }

    async fn pong(self: Arc<Self>) -> Pong {
        self.0.pong().await
    }

    async fn ask(self: Arc<Self>, from: RegionName, question: Question) -> PeerReply {
        if let Question::Act { path, body, proof } = question {
            return self.1.act_for(&path, body, proof).await;
        }
        self.0.answer_question(from, question).await
    }
}

/// Runs a gateway until a signal asks it to leave.
///
/// `files` is the place from which `config` is read again; `levels` sets the log levels then. If it
/// `founds`, a deployment of one region founds its register. The error is the setting, file or port
/// at fault, or [`LoopDied`].
pub async fn run(config: Config, files: Files, levels: Levels, founds: bool, speaks: Versions) -> Result<()> {
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    let hangup = signal(SignalKind::hangup())?;
    let metrics = recorder()?;
    let mut read = Certified::read(&config)?;
    read.identity = read.identity.map(|identity| identity.speaking(speaks));
    let ports = ports(&config, &read, speaks)?;
    let (settings, login) = (Settings { speaks, ..config.settings() }, ports.store.login());
    let gateway = Gateway::new(ports, settings, config.shared.view())?;
    certificates::start(&config, &read.expiries);
    tokio::spawn(warn_of_superuser(login.clone()));
    descriptors::for_gateway(&config);

    let replaced = Replaced::new(&config, read, login, levels);
    let [tls, admin_tls] = replaced.tls.clone();
    let (listen, heads) = (&config.process.listen, Arc::<Heads>::default());
    let public = bind(listen.public, "public").await?;
    // In shadow mode a gateway knows nothing about keys: peers must not rely on it.
    let peer = match (&replaced.identity, listen.peer) {
        (Some(identity), Some(at)) if !config.process.shadow => Some((bind(at, "peer").await?, identity)),
        _ => None,
    };
    let admin = bind(listen.admin, "admin").await?;
    let front = listen.trusted.clone().map(Arc::new);
    let trusted = match &front {
        Some(front) => Some((bind(front.address, "trusted").await?, front.clone())),
        None => None,
    };
    gateway.start(spans::JOB);
    let mut listeners = Listeners::new(CLOSE_WITHIN);
    let operators = Arc::new(Admin::new(gateway.clone(), metrics, replaced.operators.clone()));
    let service = Arc::new(Service(gateway.clone(), operators.clone()));
    let (door, bounds) = (Door::Public(front, Arc::new(listen.edge.clone())), &replaced.public);
    public::listen(&mut listeners, public, tls, service.clone(), bounds.clone(), door, &heads);
    if let Some((listener, front)) = trusted {
        tracing::info!(address = %front.address, "listening for a trusted front");
        let door = Door::Trusted(front);
        public::listen(&mut listeners, listener, None, service.clone(), bounds.clone(), door, &heads);
    }
    if let Some((peer, identity)) = peer {
        peer::listen(&mut listeners, peer, identity, service, replaced.peers.clone());
    }
    admin::listen(&mut listeners, admin, admin_tls, operators);
    if config.process.shadow {
        tracing::warn!("shadow mode: every request passes straight to the upstream; nothing is protected");
    }
    tracing::info!(
        region = %config.me, public = %listen.public, peer = listen.peer.map(tracing::field::display), admin = %listen.admin, "listening"
    );
    if founds {
        found_alone(&gateway, &config);
    }
    gateway.loaded(Vec::new());
    let running = Arc::new(Mutex::new(config));
    let watching = tokio::spawn(reload::watch(gateway.clone(), running.clone(), files, replaced, hangup));
    let died = tokio::select! {
        biased;
        () = signalled(&mut terminate, &mut interrupt) => None,
        name = gateway.loop_died() => Some(name),
    };
    watching.abort();
    let drain = locked(&running).process.drain;
    leave(&gateway, listeners, died, drain).await
}

fn recorder() -> Result<PrometheusHandle> {
    let recorder = PrometheusBuilder::new().set_buckets(&observe::BUCKETS)?.build_recorder();
    let metrics = recorder.handle();
    metrics::set_global_recorder(recorder).ok().context("another metrics recorder is set in this process")?;
    let counted = metrics.clone();
    tokio::spawn(async move {
        // A scrape counts the samples of histograms, too: unscraped ones would fill the memory.
        loop {
            tokio::time::sleep(COUNT_EVERY).await;
            counted.run_upkeep();
        }
    });
    Ok(metrics)
}

/// Warns once, when the store first answers, if its role may do anything there.
async fn warn_of_superuser(login: Login) {
    loop {
        let address = login.address();
        match is_superuser(&address).await {
            Ok(true) => {
                return tracing::warn!(
                    role = address.role(),
                    "the store's role is a superuser: a mistake could change anything there. `onceway store init` makes a role for gateways"
                );
            }
            Ok(false) => return,
            Err(_) => tokio::time::sleep(AGAIN).await,
        }
    }
}

/// Founds the register of a deployment of one region in the background, once its store answers.
fn found_alone(gateway: &Arc<Gateway>, config: &Config) {
    let failover = &config.shared.failover;
    if config.shared.ring.regions().len() > 1 || !failover.witnesses.is_empty() {
        tracing::info!("the register is not founded here: run `onceway init` once all regions are up");
        return;
    }
    let (gateway, escrow) = (Arc::downgrade(gateway), config.shared.escrow());
    tokio::spawn(async move {
        while let Some(gateway) = gateway.upgrade() {
            match gateway.found(escrow.clone(), None).await {
                Ok(report) => return tracing::info!(epoch = report.epoch, "founded the register"),
                Err(error) if error.code == "not-yet" => tracing::debug!(%error, "not founded yet"),
                Err(error) => return tracing::info!(%error, "the register is not founded anew"),
            }
            drop(gateway);
            tokio::time::sleep(FOUND_EVERY).await;
        }
    });
}

pub(super) async fn signalled(terminate: &mut Signal, interrupt: &mut Signal) {
    tokio::select! {
        biased;
        _ = terminate.recv() => tracing::info!("SIGTERM: stopping"),
        _ = interrupt.recv() => tracing::info!("SIGINT: stopping"),
    }
}

/// Waits for running requests, then closes the listeners. The error is a loop that died.
async fn leave(
    gateway: &Gateway,
    listeners: Listeners,
    died: Option<&'static str>,
    drain: Duration,
) -> Result<()> {
    if let Some(name) = died {
        // Its lease is given up already. Nobody may wait for a process that does half of its work.
        let leaving = async { tokio::join!(listeners.stop(), gateway.stop(LEAVE_WITHIN)) };
        drop(timeout(LEAVE_WITHIN, leaving).await);
        return Err(LoopDied(name).into());
    }
    let left = gateway.stop(drain).await;
    if left > 0 {
        tracing::warn!(
            left,
            "the drain time is over; what still runs is cut, its keys are in doubt after their hold"
        );
    }
    listeners.stop().await;
    tracing::info!("stopped");
    Ok(())
}

fn ports(config: &Config, read: &Certified, speaks: Versions) -> Result<RealPorts> {
    let process = &config.process;
    let origin = Origin { region: config.me.clone(), generation: process.store.generation };
    // The parser's error may quote the URL, and the URL may hold a password.
    let postgres = process.store.url.reveal().parse().ok().context("store.url is not a Postgres URL")?;
    let sealer = process.accept_key.as_ref().map(|key| {
        let sealer = STANDARD.decode(key.reveal()).ok().and_then(|key| Sealer::new(&key));
        sealer.context("[accept] key is not 32 bytes as base64")
    });
    let sealer = sealer.transpose()?;
    let connections = process.store.pool;
    let store = StoreConfig { connections, sealer, ..StoreConfig::new(origin, postgres) };
    Ok(RealPorts {
        clock: SystemClock,
        dice: SystemDice,
        store: PgStore::new(&store)?,
        peers: match read.identity.as_ref().zip(process.peer.as_ref()) {
            Some((identity, peer)) => HttpPeers::new(identity, peer.addresses.clone()),
            None => HttpPeers::none(config.me.clone(), speaks),
        },
        upstream: HttpUpstream::new(&read.upstreams),
    })
}

pub(super) async fn bind(address: std::net::SocketAddr, purpose: &str) -> Result<TcpListener> {
    TcpListener::bind(address).await.with_context(|| {
        format!(
            "cannot listen on {address} ({purpose}): choose another address under [listen], or free the port"
        )
    })
}

#[cfg(test)]
#[path = "passed_tests.rs"]
mod tests;
