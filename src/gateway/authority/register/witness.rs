//! A witness's answers: an acceptor of the register and nothing else, for deployments of two
//! regions.
//!
//! It owns nothing, so it refuses each message that is not for an acceptor. It answers one at a
//! time, and none before the promise in the answer is durable.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use tokio::sync::{Mutex, MutexGuard};

use crate::gateway::upkeep::hearing::Hearing;
use crate::ports::lock::Lock;
use crate::ports::peers::{PeerMessage, PeerReply, Pong, Question};
use crate::ports::store::{StoreError, Written};
use crate::ports::{Acceptors, Clock};
use crate::protocol::bounds::{Known, within};
use crate::protocol::confirm::{Shown, chosen_by_letters};
use crate::protocol::digest::Digest32;
use crate::protocol::grants::{Admission, GrantWatch};
use crate::protocol::region::RegionName;
use crate::protocol::register::{Acceptor, Message, Reply};
use crate::protocol::ring::Ring;
use crate::protocol::speakers::Sender;
use crate::protocol::time::{Drift, Moment};
use crate::protocol::versions::{OLDEST, Versions};
use crate::protocol::view::{AcceptorId, View};

/// The part of a witness's files that its answers depend on.
#[derive(Clone, Debug)]
pub struct Duty {
    /// The name of the witness.
    pub me: RegionName,
    /// The ring of the files: it names the speakers before a view is known.
    pub ring: Arc<Ring>,
    /// The bound on the drift of clocks.
    pub drift: Drift,
    /// The protocol versions of this process.
    pub speaks: Versions,
}

/// An acceptor that peers reach, without a store and without arcs.
pub struct Witness<A, C> {
    duty: Duty,
    acceptors: A,
    clock: C,
    seat: Mutex<Seat>,
    /// The view that the acceptor accepted last: it says who may speak here.
    known: Lock<Arc<View>>,
    hearing: Hearing,
    counts: Lock<Counted>,
}

/// Observations of this process since its start.
struct Seat {
    watch: GrantWatch,
    admission: Admission,
    /// The time when each region of the files spoke last; at the start, that of the start.
    heard: BTreeMap<RegionName, Moment>,
    /// The view that each region told last.
    letters: Shown,
    /// The newest view that enough of them told at a time (docs/protocol.md#rule-16).
    chosen: Option<Arc<View>>,
}

/// Time after which a region that says nothing is not waited for. Each of them asks every second.
const HEARD_WITHIN: Duration = Duration::from_secs(10);

impl Seat {
    fn new(duty: &Duty, held: &Acceptor, now: Moment) -> Self {
        let mut watch = GrantWatch::new(duty.drift);
        watch.observe(held, now);
        Self {
            watch,
            admission: Admission::new(duty.drift),
            heard: duty.ring.regions().iter().map(|region| (region.name.clone(), now)).collect(),
            letters: Shown::new(),
            chosen: None,
        }
    }

    fn learn(&mut self, from: RegionName, view: &Arc<View>, now: Moment) {
        self.letters.insert(from, view.clone());
        let heard = self.heard.iter().filter(|(_, last)| now.since(**last) <= HEARD_WITHIN);
        let newest = chosen_by_letters(&self.letters, heard.map(|(name, _)| name));
        let epoch = self.chosen.as_ref().map_or(0, |known| known.epoch());
        if let Some(newest) = newest.filter(|view| view.epoch() > epoch) {
            self.chosen = Some(newest);
        }
    }
}

/// Counts since the start of the process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// Messages that its acceptor answered.
    pub answered: u64,
    /// Refused messages.
    pub refused: u64,
    /// Writes of its file that failed.
    pub failed: u64,
}

/// The state of a witness, for operators.
#[derive(Debug, Serialize)]
pub struct Status {
    witness: String,
    speaks: String,
    acceptor: String,
    admitted: bool,
    epoch: Option<u64>,
    grants: BTreeMap<String, GrantStatus>,
}

#[derive(Debug, Serialize)]
struct GrantStatus {
    epoch: u64,
    number: u64,
    over: bool,
}

impl<A: Acceptors, C: Clock> Witness<A, C> {
    /// A witness over its acceptor, which holds `held` at the start: fails if that is a view of a
    /// version that this process does not speak.
    pub fn new(duty: Duty, acceptors: A, clock: C, held: &Acceptor) -> Result<Self, String> {
        let seat = Mutex::new(Seat::new(&duty, held, clock.now()));
        let accepted = held.accepted.as_ref().map(|accepted| accepted.view.clone());
        let foreign = accepted.as_ref().and_then(|view| duty.foreign(view.protocol()));
        let known = Lock::new(accepted.unwrap_or_else(|| Arc::new(View::unfounded(duty.ring.clone()))));
        let (hearing, counts) = Default::default();
        foreign.map_or(Ok(Self { duty, acceptors, clock, seat, known, hearing, counts }), Err)
    }

    /// The part of the files that answers depend on.
    pub fn duty(&self) -> &Duty {
        &self.duty
    }

    /// The counts since the start.
    pub fn counted(&self) -> Counted {
        *self.counts.lock()
    }

    /// The acceptor, as the file has it. The errors are the file's.
    pub async fn held(&self) -> Result<Acceptor, StoreError> {
        self.acceptors.acceptor().await.map(|(_, acceptor)| acceptor)
    }

    /// The state, for people. The errors are the file's.
    pub async fn status(&self) -> Result<Status, StoreError> {
        let acceptor = self.held().await?;
        let seat = self.seat.lock().await;
        let now = self.clock.now();
        let grants = acceptor.grants.iter().map(|(region, grant)| {
            let over = seat.watch.is_over(region, grant, now);
            (region.to_string(), GrantStatus { epoch: grant.view.epoch(), number: grant.number, over })
        });
        Ok(Status {
            witness: self.duty.me.to_string(),
            speaks: self.duty.speaks.to_string(),
            acceptor: format!("{:032x}", acceptor.id.0),
            admitted: acceptor.admitted,
            epoch: acceptor.accepted.as_ref().map(|accepted| accepted.view.epoch()),
            grants: grants.collect(),
        })
    }

    /// Checks that a peer may say this here. An error is one line for the peer, counted and logged.
    pub fn hears(&self, from: &RegionName, said: &PeerMessage<'_>) -> Result<(), String> {
        let heard = self.hearing.hears(from, self.sender(from), said, self.clock.now());
        heard.inspect_err(|_| self.counts.lock().refused += 1)
    }

    /// Answers a ping. A witness serves no keys and shares no routes: that digest is all zeros.
    pub async fn pong(&self) -> Pong {
        let accepted = self.held().await.ok().and_then(|acceptor| acceptor.accepted);
        let view = accepted.as_ref().map(|accepted| &accepted.view);
        let (none, speaks) = (Digest32::new([0; 32]), self.duty.speaks);
        Pong {
            epoch: view.map_or(0, |view| view.epoch()),
            view: view.map_or(none, |view| view.digest()),
            shared: none,
            serving: false,
            beat: None,
            origin: None,
            upstream_failing: false,
            heard: BTreeMap::new(),
            speaks,
            protocol: view.map_or(OLDEST, |view| view.protocol()),
            applied: BTreeMap::new(),
        }
    }

    /// Answers a question. If the content of the file is not known, there is no answer at all.
    pub async fn ask(&self, from: RegionName, question: Question) -> PeerReply {
        if let Some(why) = question.view().and_then(|view| self.duty.foreign(view.protocol())) {
            tracing::error!(%from, why, "refused a question");
            return self.refuse(why);
        }
        if let Some(last) = self.seat.lock().await.heard.get_mut(&from) {
            *last = self.clock.now();
        }
        match question {
            Question::Acceptor { to, message } => match self.bounded(&from, &message).await {
                Ok(()) => self.message(from, to, &message).await,
                Err(why) => self.refuse(why),
            },
            Question::Adopt { view } => self.adopt(from, &view).await,
            // Each other question is for a store.
            _ => {
                tracing::warn!(%from, "refused a question: a witness has no store");
                self.refuse(format!("{} is a witness: it votes on views and keeps no keys", self.duty.me))
            }
        }
    }

    /// Checks that a message's numbers are within bounds; if not, it is counted and logged.
    async fn bounded(&self, from: &RegionName, message: &Message) -> Result<(), String> {
        let acceptor = self.held().await.map_err(|error| error.to_string())?;
        let chosen = self.seat.lock().await.chosen.clone();
        let epoch = chosen.map_or(0, |view| view.epoch()).max(self.known.lock().epoch());
        within(&acceptor, message, &Known { counter: 0, epoch }).map_err(|why| {
            let kind = Question::Acceptor { to: None, message: message.clone() }.kind();
            let why = why.to_string();
            self.hearing.tell(from, self.sender(from), kind, &why, self.clock.now());
            why
        })
    }

    fn sender(&self, from: &RegionName) -> Sender {
        let view = self.known.lock().clone();
        Sender::of(from, &view, self.duty.ring.weight(from).is_some(), *from == self.duty.me)
    }

    async fn message(&self, from: RegionName, to: Option<AcceptorId>, message: &Message) -> PeerReply {
        let answered = {
            let mut seat = self.seat.lock().await;
            if let Message::Renew { view, .. } = message {
                // Whoever renews has adopted the view.
                seat.learn(from, view, self.clock.now());
            }
            self.answer(&mut seat, to, message).await
        };
        match answered {
            Ok(Some(reply)) => {
                self.counts.lock().answered += 1;
                PeerReply::Acceptor(reply)
            }
            Ok(None) => self.refuse("the acceptor changed meanwhile: ask again".to_owned()),
            Err(StoreError::Definite(why)) => {
                self.counts.lock().failed += 1;
                tracing::error!(why, "this witness could not write its file");
                self.refuse(why)
            }
            Err(StoreError::Unknown(why)) => {
                self.counts.lock().failed += 1;
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
        self.admit(seat).await?;
        let (version, acceptor) = self.acceptors.acceptor().await?;
        let now = self.clock.now();
        seat.watch.observe(&acceptor, now);
        let (next, reply) = seat.watch.answer(&acceptor, to, message, now);
        let Some(next) = next else { return Ok(Some(reply)) };
        match self.acceptors.set_acceptor(version, &next).await? {
            Written::Done => {
                seat.watch.observe(&next, self.clock.now());
                if let Some(accepted) = &next.accepted {
                    *self.known.lock() = accepted.view.clone();
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
        if let Some(next) = seat.admission.due(&acceptor, &self.duty.me, &chosen, now)
            && self.acceptors.set_acceptor(version, &next).await? == Written::Done
        {
            tracing::info!(epoch = chosen.epoch(), "this witness votes from now on");
        }
        Ok(())
    }

    /// A view that a region says was chosen.
    async fn adopt(&self, from: RegionName, view: &Arc<View>) -> PeerReply {
        let mut seat = self.seat.lock().await;
        seat.learn(from, view, self.clock.now());
        let epoch = seat.chosen.as_ref().map_or(0, |known| known.epoch());
        if let Err(error) = self.admit(&mut seat).await {
            tracing::error!(%error, "this witness could not write its file");
        }
        PeerReply::Adopted(epoch)
    }

    fn refuse(&self, why: String) -> PeerReply {
        self.counts.lock().refused += 1;
        PeerReply::Refused(why)
    }
}

impl Duty {
    /// The reason why a view of that version cannot be voted on here.
    fn foreign(&self, version: u16) -> Option<String> {
        let speaks = self.speaks;
        (!speaks.has(version)).then(|| {
            format!(
                "the regions go by protocol version {version} and this witness speaks {speaks}: run a onceway here that speaks it"
            )
        })
    }
}
