//! A witness as a process: its listeners for peers and for people, and its way through a stop.
//!
//! The answers are those of `gateway::authority::register::witness`, and `adapters::witness` keeps
//! the file. A stop ends what was begun. [`changed`] says when its files are read again.

use std::sync::Arc;

use anyhow::Result;
use http::{Method, Request, StatusCode};
use hyper::body::Incoming;
use rustls::ServerConfig;
use serde::Serialize;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::admin_door::{self, Answers};
use super::admin_http::{Answer, Key, json, problem, text};
use super::certificates::{self, Expiries};
use super::changed::Files;
use super::peer::{self, PeerLimits};
use super::reload::Levels;
use super::run::{CLOSE_WITHIN, bind, signalled};
use super::{Listeners, PeerService, Replaceable, changed, descriptors};
use crate::adapters::identity::PeerIdentity;
use crate::adapters::system::SystemClock;
use crate::adapters::witness::{AcceptorFile, Opened};
use crate::config::witness::WitnessConfig;
use crate::gateway::authority::register::witness::{Counted, Duty, Status, Witness};
use crate::gateway::reloadable::ConfigStatus;
use crate::ports::Clock;
use crate::ports::peers::{Forward, ForwardReply, PeerMessage, PeerReply, Pong, Question};
use crate::protocol::region::RegionName;
use crate::protocol::register::Acceptor;
use crate::protocol::versions::Versions;

struct Served {
    witness: Witness<AcceptorFile, SystemClock>,
    /// True if the process began as a new voter: its file may not be the last one that it wrote.
    is_anew: bool,
    /// Difference between the running witness and its files.
    config: Replaceable<ConfigStatus>,
    expiries: Replaceable<Expiries>,
    key: Key,
}

#[derive(Serialize)]
struct Shown {
    #[serde(flatten)]
    status: Status,
    config: ConfigStatus,
}

impl Answers for Served {
    async fn answer(&self, request: Request<Incoming>) -> Answer {
        if request.method() != Method::GET && request.method() != Method::HEAD {
            return problem(StatusCode::METHOD_NOT_ALLOWED, "only GET is answered here");
        }
        let path = request.uri().path();
        let acceptor = self.witness.held().await;
        match (path, acceptor) {
            ("/healthz", Ok(_)) => text(StatusCode::OK, "ok\n"),
            ("/healthz", Err(error)) => text(StatusCode::SERVICE_UNAVAILABLE, &format!("{error}\n")),
            _ if self.key.visitor(request.headers()).is_none() => self.key.refusal(),
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
}

impl Served {
    fn metrics(&self, acceptor: Option<&Acceptor>) -> String {
        let Counted { answered, refused, failed } = self.witness.counted();
        let accepted = acceptor.and_then(|acceptor| acceptor.accepted.as_ref());
        let epoch = accepted.map_or(0, |accepted| accepted.view.epoch());
        let admitted = u64::from(acceptor.is_some_and(|acceptor| acceptor.admitted));
        let (anew, current) = (u64::from(self.is_anew), u64::from(self.config.now().current));
        let anew_help = "1 if it started as a new voter: its file was put back, or its machine started anew";
        let page: String = [
            ("onceway_witness_epoch", "gauge", "Epoch of the view it accepted last, 0 if none", epoch),
            ("onceway_witness_admitted", "gauge", "1 if it may vote", admitted),
            ("onceway_witness_began_anew", "gauge", anew_help, anew),
            ("onceway_witness_answers_total", "counter", "Messages answered", answered),
            ("onceway_witness_refusals_total", "counter", "Questions refused", refused),
            ("onceway_witness_failures_total", "counter", "Writes of its file that failed", failed),
            (
                "onceway_witness_config_current",
                "gauge",
                "1 while everything that its files say is running",
                current,
            ),
        ]
        .map(|(name, kind, help, value)| {
            format!("# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}\n")
        })
        .concat();
        page + &self.expiries.now().page()
    }
}

impl PeerService for Served {
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
    files: Files,
    levels: Levels,
    speaks: Versions,
) -> Result<()> {
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    let hangup = signal(SignalKind::hangup())?;
    let identity = identity(&config)?.speaking(speaks);
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
    // It takes no forwards.
    let limits = PeerLimits { body_limit: 0, ..PeerLimits::default() };
    descriptors::make_room(descriptors::of_witness(limits.connections), "");
    let loaded = ConfigStatus {
        loaded_ms: Some(SystemClock.date().as_millis()),
        current: true,
        ..ConfigStatus::default()
    };
    let key = Key::new(config.operators.operators().into());
    let expiries = certificates::look_of_witness(&config).into();
    let served = Arc::new(Served { witness, is_anew, config: loaded.into(), expiries, key });
    let (peer, admin) = (bind(config.peer, "peer").await?, bind(config.admin, "admin").await?);
    let mut listeners = Listeners::new(CLOSE_WITHIN);
    peer::listen(&mut listeners, peer, &identity, served.clone(), limits);
    let admin_tls = admin_door::tls(&config.operators)?.map(Replaceable::from);
    admin_door::listen(&mut listeners, admin, admin_tls.clone(), served.clone());
    tracing::info!(
        witness = %config.name, acceptor = format!("{:032x}", held.id.0), peer = %config.peer, admin = %config.admin, "listening"
    );
    let replaced = Replaced { served, identity, admin_tls, levels };
    tokio::select! {
        biased;
        () = signalled(&mut terminate, &mut interrupt) => {}
        // If it ends, it logged the reason. Voting goes on with the files that were read before.
        () = async { watch(config, files, replaced, hangup).await; std::future::pending().await } => {}
    }
    listeners.stop().await;
    tracing::info!("stopped");
    Ok(())
}

/// Parts that are replaced on SIGHUP, and when one of the files changed: all of them, or nothing.
///
/// Addresses, and the settings on which the promises depend (name, file, clocks), need a restart.
struct Replaced {
    served: Arc<Served>,
    identity: PeerIdentity,
    admin_tls: Option<Replaceable<ServerConfig>>,
    levels: Levels,
}

fn identity(config: &WitnessConfig) -> anyhow::Result<PeerIdentity> {
    Ok(PeerIdentity::load(config.name.clone(), &config.identity)?)
}

/// Runs as long as it is polled.
async fn watch(begun: WitnessConfig, mut files: Files, replaced: Replaced, mut hangup: Signal) {
    let further = |config: &WitnessConfig| {
        Ok((identity(config)?, admin_door::tls(&config.operators)?, certificates::look_of_witness(config)))
    };
    let Replaced { served, identity, admin_tls, levels } = replaced;
    while let Some(read) = changed::next(&mut files, &mut hangup, WitnessConfig::load_watched, further).await
    {
        served.config.replace(match read {
            Ok((config, (newer, tls, expiries))) => {
                let restart = restart(&begun, &config);
                served.expiries.replace(expiries);
                identity.renew(&newer);
                // Tokens depend on the address: only a loopback address may have none.
                if config.admin == begun.admin {
                    served.key.operators.replace(config.operators.operators());
                }
                if let (Some(before), Some(after)) = (&admin_tls, tls) {
                    before.replace(after);
                }
                if let Err(why) = levels(&config.log.level) {
                    tracing::error!(why, "what is logged stays as it was");
                }
                changed::taken(&restart);
                let (current, problems) = (restart.is_empty(), Vec::new());
                let loaded_ms = Some(SystemClock.date().as_millis());
                ConfigStatus { current, problems, restart, loaded_ms }
            }
            Err(problems) => {
                ConfigStatus { current: false, problems, ..ConfigStatus::clone(&served.config.now()) }
            }
        });
    }
}

/// Changed settings that wait for a restart.
fn restart(begun: &WitnessConfig, config: &WitnessConfig) -> Vec<String> {
    let WitnessConfig { name, file, peer, admin, drift, log, .. } = begun;
    let differs = [
        ("name", *name != config.name),
        ("file", *file != config.file),
        ("listen.peer", *peer != config.peer),
        ("listen.admin", *admin != config.admin),
        ("[admin.tls] as such", begun.operators.tls.is_some() != config.operators.tls.is_some()),
        ("clock", *drift != config.drift),
        ("log.format", log.format != config.log.format),
    ];
    differs.into_iter().filter(|(_, differs)| *differs).map(|(key, _)| key.to_owned()).collect()
}
