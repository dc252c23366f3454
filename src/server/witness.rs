//! A witness as a process: its listeners for peers and for people, and its way through a stop.
//!
//! The answers are those of `gateway::authority::register::witness`, and `adapters::witness` keeps
//! the file. A stop ends what was begun. This file must not judge what a peer may say, nor what is
//! promised.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use http::{Method, Request, StatusCode};
use hyper::body::Incoming;
use rustls::ServerConfig;
use serde::Serialize;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

use super::admin_answer::{Answer, json, problem, text};
use super::admin_door;
use super::admin_key::Key;
use super::certificates::{self, Expiries};
use super::descriptors;
use super::peer::{self, PeerLimits};
use super::reload::Levels;
use super::replaceable::Replaceable;
use super::run::bind;
use super::witness_reload::{self, Replaced, WitnessFiles};
use super::{Listeners, PeerService};
use crate::adapters::system::SystemClock;
use crate::adapters::witness::Opened;
use crate::config::witness::WitnessConfig;
use crate::gateway::authority::register::witness::{Counted, Duty, Status, Witness};
use crate::gateway::reloadable::ConfigStatus;
use crate::ports::peers::{Forward, ForwardReply, PeerMessage, PeerReply, Pong, Question};
use crate::ports::{Acceptors, Clock};
use crate::protocol::region::RegionName;
use crate::protocol::register::Acceptor;
use crate::protocol::versions::Versions;

/// Longest time for connections to finish at a stop.
const CLOSE_WITHIN: Duration = Duration::from_secs(2);
/// Bounds of its peer listener: it takes no forwards, and no answers to lodge.
const LIMITS: PeerLimits = PeerLimits {
    connections: 1_000,
    handshake_time: Duration::from_secs(5),
    body_limit: 0,
    question_limit: peer::QUESTION_LIMIT,
    body_time: Duration::from_secs(10),
};

struct Served<A, C> {
    witness: Witness<A, C>,
    /// True if the process began as a new voter: its file may not be the last one that it wrote.
    began_anew: bool,
    config: Replaceable<ConfigStatus>,
    expiries: Replaceable<Expiries>,
}

/// The state of the process, for operators.
#[derive(Serialize)]
struct Shown {
    #[serde(flatten)]
    status: Status,
    config: ConfigStatus,
}

impl<A: Acceptors, C: Clock> Served<A, C> {
    async fn show(&self, key: &Key, request: Request<Incoming>) -> Answer {
        if request.method() != Method::GET && request.method() != Method::HEAD {
            return problem(StatusCode::METHOD_NOT_ALLOWED, "only GET is answered here");
        }
        let path = request.uri().path();
        let acceptor = self.witness.held().await;
        match (path, acceptor) {
            ("/healthz", Ok(_)) => text(StatusCode::OK, "ok\n"),
            ("/healthz", Err(error)) => text(StatusCode::SERVICE_UNAVAILABLE, &format!("{error}\n")),
            _ if key.visitor(request.headers()).is_none() => key.refusal(),
            ("/metrics", acceptor) => text(StatusCode::OK, &self.metrics(acceptor.ok().as_ref())),
            ("/v1/status", _) => match self.witness.status().await {
                Ok(status) => {
                    let config = ConfigStatus::clone(&self.config.now());
                    json(StatusCode::OK, &Shown { status, config })
                }
                Err(error) => problem(StatusCode::SERVICE_UNAVAILABLE, &error.to_string()),
            },
            (_, Ok(_) | Err(_)) => problem(StatusCode::NOT_FOUND, "ask /healthz, /metrics or /v1/status"),
        }
    }

    fn metrics(&self, acceptor: Option<&Acceptor>) -> String {
        let Counted { answered, refused, failed } = self.witness.counted();
        let accepted = acceptor.and_then(|acceptor| acceptor.accepted.as_ref());
        let epoch = accepted.map_or(0, |accepted| accepted.view.epoch());
        let admitted = u64::from(acceptor.is_some_and(|acceptor| acceptor.admitted));
        let one = |name: &str, kind: &str, help: &str, value: u64| {
            format!("# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}\n")
        };
        [
            one("onceway_witness_epoch", "gauge", "Epoch of the view it accepted last, 0 if none", epoch),
            one("onceway_witness_admitted", "gauge", "1 if it may vote", admitted),
            one(
                "onceway_witness_began_anew",
                "gauge",
                "1 if it started as a new voter: its file was put back, or its machine started anew",
                u64::from(self.began_anew),
            ),
            one("onceway_witness_answers_total", "counter", "Messages answered", answered),
            one("onceway_witness_refusals_total", "counter", "Questions refused", refused),
            one("onceway_witness_failures_total", "counter", "Writes of its file that failed", failed),
            one(
                "onceway_witness_config_current",
                "gauge",
                "1 while everything that its files say is running",
                u64::from(self.config.now().current),
            ),
            self.expiries.now().page(),
        ]
        .concat()
    }
}

impl<A: Acceptors, C: Clock> PeerService for Served<A, C> {
    type Place = ();

    fn hears(&self, from: &RegionName, said: &PeerMessage<'_>) -> Result<(), String> {
        self.witness.hears(from, said)
    }

    fn place(&self, _head: &Forward, _bytes: usize) -> Result<(), Box<ForwardReply>> {
        Ok(())
    }

    async fn forward(self: Arc<Self>, from: RegionName, forward: Forward, _place: ()) -> ForwardReply {
        tracing::warn!(%from, key = %forward.id.digest(), "refused a forward: a witness owns no keys");
        let accepted = self.witness.held().await.ok().and_then(|acceptor| acceptor.accepted);
        ForwardReply::NotOwner { epoch: accepted.map_or(0, |accepted| accepted.view.epoch()) }
    }

    async fn pong(self: Arc<Self>) -> Pong {
        self.witness.pong().await
    }

    async fn ask(self: Arc<Self>, from: RegionName, question: Question) -> PeerReply {
        self.witness.ask(from, question).await
    }
}

/// Runs a witness until a signal asks it to leave.
pub async fn run(
    config: WitnessConfig,
    opened: Opened,
    files: WitnessFiles,
    levels: Levels,
    speaks: Versions,
) -> Result<()> {
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    let hangup = signal(SignalKind::hangup())?;
    let identity = witness_reload::identity(&config)?.speaking(speaks);
    let duty = Duty { me: config.name.clone(), ring: config.ring.clone(), drift: config.drift, speaks };
    let Opened { file, held, is_anew } = opened;
    let witness = Witness::new(duty, file, SystemClock, &held).map_err(anyhow::Error::msg)?;
    if is_anew {
        tracing::warn!(
            acceptor = format!("{:032x}", held.id.0),
            "this witness cannot show that its file is the last that it wrote: it was put back from a copy, or the machine was started \
             anew. It may have forgotten promises, so it is a new voter: silent until the regions have taken it in"
        );
    }
    descriptors::make_room(descriptors::of_witness(LIMITS.connections), "");
    let loaded = ConfigStatus {
        loaded_ms: Some(SystemClock.date().as_millis()),
        current: true,
        ..ConfigStatus::default()
    };
    let served = Served {
        witness,
        began_anew: is_anew,
        config: loaded.into(),
        expiries: certificates::look_of_witness(&config).into(),
    };
    let (says, expiries) = (served.config.clone(), served.expiries.clone());
    let served = Arc::new(served);
    let (peer, admin) = (bind(config.peer, "peer").await?, bind(config.admin, "admin").await?);
    let mut listeners = Listeners::new(CLOSE_WITHIN);
    peer::listen(&mut listeners, peer, &identity, served.clone(), LIMITS);
    let operators = Replaceable::from(config.operators.operators());
    let admin_tls = admin_door::tls(&config.operators)?.map(Replaceable::from);
    show(&mut listeners, admin, admin_tls.clone(), served, Key::new(operators.clone()));
    tracing::info!(
        witness = %config.name, acceptor = format!("{:032x}", held.id.0), peer = %config.peer, admin = %config.admin, "listening"
    );
    tokio::select! {
        biased;
        _ = terminate.recv() => tracing::info!("SIGTERM: stopping"),
        _ = interrupt.recv() => tracing::info!("SIGINT: stopping"),
        () = witness_reload::watch(config, files, Replaced { identity, expiries, operators, admin_tls, levels, says }, hangup) => {
            // The watch logged the reason. Voting goes on with the files that were read before.
            tokio::select! {
                biased;
                _ = terminate.recv() => tracing::info!("SIGTERM: stopping"),
                _ = interrupt.recv() => tracing::info!("SIGINT: stopping"),
            }
        }
    }
    listeners.stop().await;
    tracing::info!("stopped");
    Ok(())
}

/// Listens for operators, health checks and scrapers in the background.
fn show<A: Acceptors, C: Clock>(
    listeners: &mut Listeners,
    listener: TcpListener,
    tls: Option<Replaceable<ServerConfig>>,
    served: Arc<Served<A, C>>,
    key: Key,
) {
    let key = Arc::new(key);
    admin_door::listen(listeners, listener, tls, move |request| {
        let (served, key) = (served.clone(), key.clone());
        async move { Ok::<_, Infallible>(served.show(&key, request).await) }
    });
}
