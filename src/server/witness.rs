//! A witness: an acceptor of the register and nothing else, for deployments of two regions.
//!
//! Neighbours: `adapters::witness` keeps its file, `protocol::{register, grants}` decide what it answers, [`super::peer`] brings the questions,
//! `cli::witness` starts it. It has no keys and owns nothing: whatever is not for an acceptor is refused. One message is answered at a
//! time, and none before what it promises is durable.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex as StdMutex, MutexGuard as MutexGuardStd, PoisonError};
use std::time::Duration;

use anyhow::Result;
use http::{Method, Request, StatusCode};
use hyper::body::Incoming;
use serde::Serialize;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Mutex, MutexGuard};

use super::admin::{self, Answer, Key};
use super::admin_door;
use super::certificates::{self, Expiries};
use super::descriptors;
use super::peer::{self, PeerLimits};
use super::reload::Levels;
use super::replaceable::Replaceable;
use super::run::bind;
use super::witness_reload::{self, Replaced, WitnessFiles};
use super::{Listeners, PeerService};
use crate::adapters::system::SystemClock;
use crate::adapters::witness::AcceptorFile;
use crate::config::witness::WitnessConfig;
use crate::gateway::hearing::Hearing;
use crate::gateway::live::ConfigStatus;
use crate::ports::peers::{Forward, ForwardReply, Pong, Question, Said, Told};
use crate::ports::store::{StoreError, Written};
use crate::ports::{Acceptors, Clock};
use crate::protocol::bounds::{Known, near_epoch, within};
use crate::protocol::digest::Digest32;
use crate::protocol::grants::{Admission, GrantWatch};
use crate::protocol::region::RegionName;
use crate::protocol::register::{Acceptor, Message, Reply};
use crate::protocol::ring::Ring;
use crate::protocol::speakers::Sender;
use crate::protocol::time::Drift;
use crate::protocol::versions::{HEARD, OLDEST, Versions};
use crate::protocol::view::{AcceptorId, View};

/// How long connections may take to finish at a stop.
const CLOSE_WITHIN: Duration = Duration::from_secs(2);
/// Bounds of its peer listener: it takes no forwards, and no answers to lodge.
const LIMITS: PeerLimits = PeerLimits {
    connections: 1_000,
    handshake_time: Duration::from_secs(5),
    body_limit: 0,
    question_limit: peer::QUESTION_LIMIT,
    body_time: Duration::from_secs(10),
};

/// An acceptor that peers reach, without a store and without arcs.
pub struct Witness<A, C> {
    me: RegionName,
    speaks: Versions,
    acceptors: A,
    clock: C,
    seat: Mutex<Seat>,
    /// The ring of its files.
    files: Arc<Ring>,
    /// How long a lease of the deployment runs at most.
    longest: Duration,
    /// The view that it accepted last: who may speak here. Not one that it was told, as it never asks whether a majority holds that.
    known: StdMutex<Arc<View>>,
    hearing: Hearing,
    counts: Counts,
    config: Replaceable<ConfigStatus>,
    expiries: Replaceable<Expiries>,
}

/// What this process saw since it started.
struct Seat {
    watch: GrantWatch,
    admission: Admission,
    /// The newest chosen view that it was told.
    chosen: Option<Arc<View>>,
}

impl Seat {
    /// A view that was chosen.
    fn learn(&mut self, view: &Arc<View>) {
        if self.chosen.as_ref().is_none_or(|known| known.epoch() < view.epoch()) {
            self.chosen = Some(view.clone());
        }
    }
}

#[derive(Default)]
struct Counts {
    answered: AtomicU64,
    refused: AtomicU64,
    failed: AtomicU64,
}

/// What an operator sees of a witness.
#[derive(Serialize)]
struct Status {
    witness: String,
    speaks: String,
    acceptor: String,
    admitted: bool,
    epoch: Option<u64>,
    grants: BTreeMap<String, GrantStatus>,
    config: ConfigStatus,
}

#[derive(Serialize)]
struct GrantStatus {
    epoch: u64,
    number: u64,
    over: bool,
}

impl<A: Acceptors, C: Clock> Witness<A, C> {
    /// The witness `me` over its acceptor, with the ring of its files; no lease of the deployment runs longer than `longest`.
    pub fn new(
        me: RegionName,
        acceptors: A,
        clock: C,
        drift: Drift,
        longest: Duration,
        files: Arc<Ring>,
    ) -> Self {
        let speaks = Versions::OURS;
        let seat =
            Seat { watch: GrantWatch::new(drift), admission: Admission::new(drift, longest), chosen: None };
        let config =
            ConfigStatus { loaded_ms: Some(clock.date().as_millis()), current: true, ..Default::default() };
        let (seat, config, expiries) = (Mutex::new(seat), config.into(), Expiries::default().into());
        let known = StdMutex::new(Arc::new(View::unfounded(files.clone())));
        let (hearing, counts) = (Hearing::default(), Counts::default());
        Self { me, speaks, acceptors, clock, seat, files, longest, known, hearing, counts, config, expiries }
    }

    /// The same witness, speaking these versions.
    pub fn speaking(self, speaks: Versions) -> Self {
        Self { speaks, ..self }
    }

    /// Looks at the grants that stand in its file: from now on they can be seen to be over.
    ///
    /// # Errors
    /// The file's; it was written by a newer version.
    pub async fn look(&self) -> Result<AcceptorId, StoreError> {
        let mut seat = self.seat.lock().await;
        let (_, acceptor) = self.acceptors.acceptor().await?;
        let accepted = acceptor.accepted.as_ref().map(|accepted| accepted.view.protocol());
        if let Some(why) = accepted.and_then(|version| self.foreign(version)) {
            return Err(StoreError::Definite(why));
        }
        seat.watch.observe(&acceptor, self.clock.now());
        if let Some(accepted) = &acceptor.accepted {
            *self.known() = accepted.view.clone();
        }
        Ok(acceptor.id)
    }

    fn known(&self) -> MutexGuardStd<'_, Arc<View>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a message's numbers are within bounds; if not it is counted and logged, and nothing is done.
    async fn bounded(&self, from: &RegionName, message: &Message) -> Result<(), String> {
        let acceptor = self.accepted().await.map_err(|error| error.to_string())?;
        let (longest, chosen) = (self.longest, self.seat.lock().await.chosen.clone());
        let epoch = chosen.map_or(0, |view| view.epoch()).max(self.known().epoch());
        within(&acceptor, message, &Known { counter: 0, epoch, lease: longest }).map_err(|why| {
            let kind = Question::Acceptor { to: None, message: message.clone() }.kind();
            let why = why.to_string();
            self.hearing.tell(from, self.sender(from), kind, &why, self.clock.now());
            why
        })
    }

    fn sender(&self, from: &RegionName) -> Sender {
        let view = self.known().clone();
        Sender::of(from, &view, self.files.weight(from).is_some(), *from == self.me)
    }

    /// Why a view of that version cannot be voted on here.
    fn foreign(&self, version: u16) -> Option<String> {
        let speaks = self.speaks;
        (!speaks.has(version)).then(|| {
            format!(
                "the regions go by protocol version {version} and this witness speaks {speaks}: run a onceway here that speaks it"
            )
        })
    }

    async fn message(&self, to: Option<AcceptorId>, message: &Message) -> Told {
        let answered = {
            let mut seat = self.seat.lock().await;
            self.answer(&mut seat, to, message).await
        };
        match answered {
            Ok(Some(reply)) => {
                self.counts.answered.fetch_add(1, Ordering::Relaxed);
                Told::Acceptor(reply)
            }
            Ok(None) => self.refuse("the acceptor changed meanwhile: ask again".to_owned()),
            Err(StoreError::Definite(why)) => {
                self.counts.failed.fetch_add(1, Ordering::Relaxed);
                tracing::error!(why, "this witness could not write its file");
                self.refuse(why)
            }
            Err(StoreError::Unknown(why)) => {
                self.counts.failed.fetch_add(1, Ordering::Relaxed);
                tracing::error!(
                    why,
                    "this witness does not know what stands in its file; it answers nothing more"
                );
                // It may stand there or not, so both "done" and "nothing was done" would be lies.
                std::future::pending().await
            }
        }
    }

    /// The reply, once what it promises is durable; `None` if somebody else wrote meanwhile.
    async fn answer(
        &self,
        seat: &mut MutexGuard<'_, Seat>,
        to: Option<AcceptorId>,
        message: &Message,
    ) -> Result<Option<Reply>, StoreError> {
        if let Message::Renew { view, .. } = message {
            // Whoever renews has adopted the view, so it is a chosen one.
            seat.learn(view);
        }
        self.admit(seat).await?;
        let (version, acceptor) = self.acceptors.acceptor().await?;
        let now = self.clock.now();
        seat.watch.observe(&acceptor, now);
        let over = |region: &RegionName, grant: &_| seat.watch.is_over(region, grant, now);
        let (next, reply) = acceptor.answer(to, message, &over);
        let Some(next) = next else { return Ok(Some(reply)) };
        match self.acceptors.set_acceptor(version, &next).await? {
            Written::Done => {
                seat.watch.observe(&next, self.clock.now());
                if let Some(accepted) = &next.accepted {
                    *self.known() = accepted.view.clone();
                }
                Ok(Some(reply))
            }
            Written::Lost | Written::GateMoved => Ok(None),
        }
    }

    /// Lets the acceptor answer once it was silent for long enough as a voter.
    async fn admit(&self, seat: &mut MutexGuard<'_, Seat>) -> Result<(), StoreError> {
        let Some(chosen) = seat.chosen.clone() else { return Ok(()) };
        let (version, acceptor) = self.acceptors.acceptor().await?;
        let now = self.clock.now();
        if let Some(next) = seat.admission.due(&acceptor, &self.me, &chosen, now)
            && self.acceptors.set_acceptor(version, &next).await? == Written::Done
        {
            tracing::info!(epoch = chosen.epoch(), "this witness votes from now on");
        }
        Ok(())
    }

    /// A chosen view, as a region tells it.
    async fn adopt(&self, view: Arc<View>) -> Told {
        let mut seat = self.seat.lock().await;
        if near_epoch(view.epoch(), self.known().epoch()).is_ok() {
            seat.learn(&view);
        }
        let epoch = seat.chosen.as_ref().map_or(0, |known| known.epoch());
        if let Err(error) = self.admit(&mut seat).await {
            tracing::error!(%error, "this witness could not write its file");
        }
        Told::Adopted(epoch)
    }

    fn refuse(&self, why: String) -> Told {
        self.counts.refused.fetch_add(1, Ordering::Relaxed);
        Told::Refused(why)
    }

    async fn accepted(&self) -> Result<Acceptor, StoreError> {
        self.acceptors.acceptor().await.map(|(_, acceptor)| acceptor)
    }

    /// Answers an operator.
    async fn show(&self, key: &Key, request: Request<Incoming>) -> Answer {
        if request.method() != Method::GET && request.method() != Method::HEAD {
            return admin::problem(StatusCode::METHOD_NOT_ALLOWED, "only GET is answered here");
        }
        let path = request.uri().path();
        let acceptor = self.accepted().await;
        match (path, acceptor) {
            ("/healthz", Ok(_)) => admin::text(StatusCode::OK, "ok\n"),
            ("/healthz", Err(error)) => admin::text(StatusCode::SERVICE_UNAVAILABLE, &format!("{error}\n")),
            _ if !key.allows(request.headers()) => key.refusal(),
            ("/metrics", acceptor) => admin::text(StatusCode::OK, &self.metrics(acceptor.ok().as_ref())),
            ("/v1/status", Ok(acceptor)) => admin::json(StatusCode::OK, &self.status(&acceptor).await),
            ("/v1/status", Err(error)) => admin::problem(StatusCode::SERVICE_UNAVAILABLE, &error.to_string()),
            (_, Ok(_) | Err(_)) => {
                admin::problem(StatusCode::NOT_FOUND, "ask /healthz, /metrics or /v1/status")
            }
        }
    }

    async fn status(&self, acceptor: &Acceptor) -> Status {
        let seat = self.seat.lock().await;
        let now = self.clock.now();
        let grants = acceptor.grants.iter().map(|(region, grant)| {
            let over = seat.watch.is_over(region, grant, now);
            (region.to_string(), GrantStatus { epoch: grant.view.epoch(), number: grant.number, over })
        });
        Status {
            witness: self.me.to_string(),
            speaks: self.speaks.to_string(),
            acceptor: format!("{:032x}", acceptor.id.0),
            admitted: acceptor.admitted,
            epoch: acceptor.accepted.as_ref().map(|accepted| accepted.view.epoch()),
            grants: grants.collect(),
            config: ConfigStatus::clone(&self.config.now()),
        }
    }

    fn metrics(&self, acceptor: Option<&Acceptor>) -> String {
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let accepted = acceptor.and_then(|acceptor| acceptor.accepted.as_ref());
        let epoch = accepted.map_or(0, |accepted| accepted.view.epoch());
        let admitted = u64::from(acceptor.is_some_and(|acceptor| acceptor.admitted));
        let one = |name: &str, kind: &str, help: &str, value: u64| {
            format!("# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}\n")
        };
        [
            one("onceway_witness_epoch", "gauge", "Epoch of the view it accepted last, 0 if none", epoch),
            one("onceway_witness_admitted", "gauge", "1 if it may vote", admitted),
            one("onceway_witness_answers_total", "counter", "Messages answered", load(&self.counts.answered)),
            one("onceway_witness_refusals_total", "counter", "Questions refused", load(&self.counts.refused)),
            one(
                "onceway_witness_failures_total",
                "counter",
                "Writes of its file that failed",
                load(&self.counts.failed),
            ),
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

impl<A: Acceptors, C: Clock> PeerService for Witness<A, C> {
    type Place = ();

    fn hears(&self, from: &RegionName, said: &Said<'_>) -> Result<(), String> {
        let heard = self.hearing.hears(from, self.sender(from), said, self.clock.now());
        heard.inspect_err(|_| {
            self.counts.refused.fetch_add(1, Ordering::Relaxed);
        })
    }

    fn place(&self, _head: &Forward, _bytes: usize) -> Result<(), Box<ForwardReply>> {
        Ok(())
    }

    async fn forward(self: Arc<Self>, from: RegionName, forward: Forward, _place: ()) -> ForwardReply {
        tracing::warn!(%from, key = %forward.id.digest(), "refused a forward: a witness owns no keys");
        let epoch = match self.accepted().await {
            Ok(acceptor) => acceptor.accepted.map_or(0, |accepted| accepted.view.epoch()),
            Err(_) => 0,
        };
        ForwardReply::NotOwner { epoch }
    }

    /// It serves no keys, has no heartbeat and shares no routes: its digest of those is all zeros.
    async fn pong(self: Arc<Self>) -> Pong {
        let accepted = self.accepted().await.ok().and_then(|acceptor| acceptor.accepted);
        let none = Digest32::new([0; 32]);
        Pong {
            epoch: accepted.as_ref().map_or(0, |accepted| accepted.view.epoch()),
            view: accepted.as_ref().map_or(none, |accepted| accepted.view.digest()),
            shared: none,
            serving: false,
            beat: None,
            origin: None,
            upstream_failing: false,
            heard: self.speaks.has(HEARD).then(BTreeMap::new),
            speaks: self.speaks,
            protocol: accepted.as_ref().map_or(OLDEST, |accepted| accepted.view.protocol()),
            applied: BTreeMap::new(),
        }
    }

    async fn ask(self: Arc<Self>, from: RegionName, question: Question) -> Told {
        if let Some(why) = question.view().and_then(|view| self.foreign(view.protocol())) {
            tracing::error!(%from, why, "refused a question");
            return self.refuse(why);
        }
        match question {
            Question::Acceptor { to, message } => match self.bounded(&from, &message).await {
                Ok(()) => self.message(to, &message).await,
                Err(why) => self.refuse(why),
            },
            Question::Adopt { view } => self.adopt(view).await,
            Question::Views { .. }
            | Question::Release { .. }
            | Question::Frontier { .. }
            | Question::Rows { .. }
            | Question::Lodge(_)
            | Question::LodgeAnswer { .. }
            | Question::Void { .. }
            | Question::Operator(_)
            | Question::Key { .. } => {
                tracing::warn!(%from, "refused a question: a witness has no store");
                self.refuse(format!("{} is a witness: it votes on views and keeps no keys", self.me))
            }
        }
    }
}

/// Runs a witness until a signal asks it to leave. Errors say which file or port is at fault.
pub async fn run(
    config: WitnessConfig,
    file: AcceptorFile,
    files: WitnessFiles,
    levels: Levels,
    speaks: Versions,
) -> Result<()> {
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    let hangup = signal(SignalKind::hangup())?;
    let identity = witness_reload::identity(&config)?.speaking(speaks);
    let (drift, lease, ring) = (config.drift, config.lease, config.ring.clone());
    let witness = Witness::new(config.name.clone(), file, SystemClock, drift, lease, ring);
    let witness = witness.speaking(speaks);
    let acceptor = witness.look().await?;
    descriptors::make_room(descriptors::of_witness(LIMITS.connections), "");
    witness.expiries.replace(certificates::look_of_witness(&config));
    let (says, expiries) = (witness.config.clone(), witness.expiries.clone());
    let witness = Arc::new(witness);
    let (peer, admin) = (bind(config.peer, "peer").await?, bind(config.admin, "admin").await?);
    let mut listeners = Listeners::new(CLOSE_WITHIN);
    peer::listen(&mut listeners, peer, &identity, witness.clone(), LIMITS);
    let token = Replaceable::from(witness_reload::token(&config));
    show(&mut listeners, admin, witness, Key(token.clone()));
    tracing::info!(
        witness = %config.name, acceptor = format!("{:032x}", acceptor.0), peer = %config.peer, admin = %config.admin, "listening"
    );
    tokio::select! {
        biased;
        _ = terminate.recv() => tracing::info!("SIGTERM: stopping"),
        _ = interrupt.recv() => tracing::info!("SIGINT: stopping"),
        () = witness_reload::watch(config, files, Replaced { identity, expiries, token, levels, says }, hangup) => {
            // It said why; votes go on by what was read before.
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
    witness: Arc<Witness<A, C>>,
    key: Key,
) {
    let key = Arc::new(key);
    admin_door::listen(listeners, listener, move |request| {
        let (witness, key) = (witness.clone(), key.clone());
        async move { Ok::<_, Infallible>(witness.show(&key, request).await) }
    });
}
