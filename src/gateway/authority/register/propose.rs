//! Rounds of the register, and the messages to acceptors: each voter by itself, at the same time.
//!
//! `protocol::{round, register}` decide. A process makes one proposal at a time, and backs off
//! before rivals. The own acceptor's answer leaves only when its promise is durable, never from
//! memory.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::mpsc;

use crate::gateway::instance::Gateway;
use crate::ports::peers::{PeerReply, Question};
use crate::ports::store::Written;
use crate::ports::{Acceptors, Clock, Dice, Peers, Ports};
use crate::protocol::bounds::{AHEAD, follow};
use crate::protocol::region::RegionName;
use crate::protocol::register::{Acceptor, Message, Reply};
use crate::protocol::round::{Outbox, Round, Step};
use crate::protocol::time::Moment;
use crate::protocol::view::{AcceptorId, View};

/// The first pause after a round that was outbid or blocked; it doubles.
const PAUSE: Duration = Duration::from_millis(20);
/// Time that the other voters get once one voter is blocked.
const STRAGGLERS: Duration = Duration::from_millis(100);
const SILENT: &str = "no majority of the acceptors answers";
const OUTBID: &str = "another region proposes too";
/// The first pause before a round that finishes another proposer's view; it doubles.
const FINISH: Duration = Duration::from_millis(500);

/// Has `wanted`, the next view of `base`, agreed on. After an error it still may be, later.
pub async fn propose<P: Ports>(
    gateway: &Arc<Gateway<P>>,
    base: &Arc<View>,
    wanted: Arc<View>,
    within: Duration,
) -> Result<Arc<View>, String> {
    let _one = gateway.authority.proposals.proposing.lock().await;
    let until = gateway.now() + within;
    let mut pause = PAUSE;
    let mut why = SILENT;
    while gateway.now() < until {
        if gateway.view().epoch() > base.epoch() {
            return Err(format!("the view changed meanwhile: epoch {}", gateway.view().epoch()));
        }
        match round(gateway, base, Some(wanted.clone()), until).await {
            Ok(view) => {
                tell(gateway, &view);
                if view == wanted {
                    return Ok(view);
                }
                // A view that another proposer had begun came first.
            }
            Err(obstacle) => why = obstacle,
        }
        rest(gateway, &mut pause).await;
    }
    Err(why.to_owned())
}

/// Finishes another proposer's view if it is unfinished after a while.
pub fn finish_later<P: Ports>(gateway: &Arc<Gateway<P>>) {
    if gateway.authority.proposals.finishing.swap(true, Ordering::SeqCst) {
        return;
    }
    let gateway = gateway.clone();
    tokio::spawn(async move {
        let base = gateway.view();
        let lease = gateway.settings.failover.lease;
        let clock = gateway.ports.clock();
        let until = clock.now() + lease * 4;
        let mut pause = (lease / 4).min(FINISH);
        while gateway.view().epoch() == base.epoch() && clock.now() < until && !gateway.is_stopping() {
            rest(&gateway, &mut pause).await;
            let one = gateway.authority.proposals.proposing.lock().await;
            if gateway.view().epoch() > base.epoch() {
                break;
            }
            if let Ok(view) = round(&gateway, &base, None, until).await {
                tell(&gateway, &view);
                break;
            }
            drop(one);
        }
        gateway.authority.proposals.finishing.store(false, Ordering::SeqCst);
    });
}

async fn rest<P: Ports>(gateway: &Gateway<P>, pause: &mut Duration) {
    let jitter = gateway.ports.dice().jitter(*pause);
    let clock = gateway.ports.clock();
    clock.sleep_until(clock.now() + *pause / 2 + jitter).await;
    *pause = (*pause * 2).min(gateway.settings.failover.lease);
}

async fn round<P: Ports>(
    gateway: &Arc<Gateway<P>>,
    base: &Arc<View>,
    wanted: Option<Arc<View>>,
    until: Moment,
) -> Result<Arc<View>, &'static str> {
    let proposals = &gateway.authority.proposals;
    let ballot = proposals.next(gateway.settings.me.clone());
    let clock = gateway.ports.clock();
    let mut until = until.min(clock.now() + WITHIN);
    let (mut round, outbox) = Round::open(ballot, base.clone(), wanted);
    let (into, mut replies) = mpsc::unbounded_channel();
    send_into(gateway, outbox, WITHIN, &into);
    let (mut blocked, mut far) = (false, Vec::new());
    let own = proposals.highest();
    loop {
        let heard = tokio::select! {
            biased;
            heard = replies.recv() => heard,
            () = clock.sleep_until(until) => None,
        };
        let Some((voter, id, reply)) = heard else { break };
        match round.heard(&voter, id, &reply) {
            Step::Wait => {}
            Step::Send(outbox) => send_into(gateway, outbox, WITHIN, &into),
            Step::Chosen(view) => {
                gateway.install_view(&view);
                return Ok(view);
            }
            // The others may still be a majority.
            Step::Blocked(region) => {
                tracing::debug!(%region, %voter, "a running lease blocks a change");
                if !blocked {
                    until = until.min(clock.now() + STRAGGLERS);
                }
                blocked = true;
            }
            // One acceptor alone misleads no round: the others may still be a majority.
            Step::Outbid(counter) if counter > own.saturating_add(AHEAD) => {
                tracing::warn!(%voter, counter, own, "an acceptor has promised a ballot that is out of bounds");
                far.push(counter);
            }
            Step::Outbid(counter) => {
                proposals.follow(counter);
                return Err(OUTBID);
            }
        }
    }
    let voters = base.voters().len();
    if let Some(counter) = follow(far.clone(), voters.saturating_sub(far.len()), voters) {
        proposals.follow(counter);
        return Err(OUTBID);
    }
    Err(match blocked {
        true => "a lease still runs that the change would break",
        false if !far.is_empty() => {
            "acceptors have promised a ballot that is out of bounds: see \"Poisoned register\" in the runbook"
        }
        false => SILENT,
    })
}

/// Tells all others of a chosen view. Those that miss the message learn it from pings.
pub fn tell<P: Ports>(gateway: &Arc<Gateway<P>>, view: &Arc<View>) {
    let others = view.members().keys().chain(gateway.settings.failover.witnesses.iter());
    for other in others.filter(|name| **name != gateway.settings.me) {
        let (gateway, view, other) = (gateway.clone(), view.clone(), other.clone());
        tokio::spawn(async move {
            let question = Question::Adopt { view };
            if let Err(error) = gateway.ports.peers().ask(&other, question, WITHIN).await {
                tracing::debug!(%other, %error, "a region was not told of a view");
            }
        });
    }
}

/// Time limit for a peer to report its views, and for an acceptor to show its state.
pub const WITHIN: Duration = Duration::from_secs(1);
const TRIES: usize = 16;

/// Replies in the order of their arrival, each with the acceptor that was asked.
pub type Replies = mpsc::UnboundedReceiver<(RegionName, AcceptorId, Reply)>;

/// Sends the message to all voters; gives one up after `within`.
pub fn send<P: Ports>(
    gateway: &Arc<Gateway<P>>,
    view: &View,
    message: &Message,
    within: Duration,
) -> Replies {
    let (into, replies) = mpsc::unbounded_channel();
    let outbox = view.voters().iter().map(|(name, id)| (name.clone(), *id, message.clone()));
    send_into(gateway, outbox.collect(), within, &into);
    replies
}

fn send_into<P: Ports>(
    gateway: &Arc<Gateway<P>>,
    outbox: Outbox,
    within: Duration,
    into: &mpsc::UnboundedSender<(RegionName, AcceptorId, Reply)>,
) {
    for (voter, id, message) in outbox {
        let (gateway, into) = (gateway.clone(), into.clone());
        tokio::spawn(async move {
            if let Some(reply) = ask(&gateway, &voter, Some(id), message, within).await {
                // A closed channel is fine: the sender already has enough replies.
                let _ = into.send((voter, id, reply));
            }
        });
    }
}

pub async fn ask<P: Ports>(
    gateway: &Arc<Gateway<P>>,
    voter: &RegionName,
    to: Option<AcceptorId>,
    message: Message,
    within: Duration,
) -> Option<Reply> {
    if *voter == gateway.settings.me {
        let answered = answer(gateway, to, &message).await;
        return answered.inspect_err(|why| tracing::debug!(why, "the own acceptor does not answer")).ok();
    }
    match gateway.ports.peers().ask(voter, Question::Acceptor { to, message }, within).await {
        Ok(PeerReply::Acceptor(reply)) => return Some(reply),
        Ok(other) => tracing::debug!(%voter, ?other, "an acceptor does not answer"),
        Err(error) => tracing::debug!(%voter, %error, "an acceptor cannot be reached"),
    }
    None
}

/// The own acceptor's answer. If a write may or may not have happened, there is none.
pub async fn answer<P: Ports>(
    gateway: &Arc<Gateway<P>>,
    to: Option<AcceptorId>,
    message: &Message,
) -> Result<Reply, String> {
    let store = gateway.store();
    for _ in 0..TRIES {
        let (version, acceptor) = store.acceptor().await.map_err(|error| error.to_string())?;
        let now = observe(gateway, &acceptor);
        let (next, reply) = gateway.authority.watch.lock().answer(&acceptor, to, message, now);
        let Some(next) = next else { return Ok(reply) };
        match store.set_acceptor(version, &next).await.map_err(|error| error.to_string())? {
            Written::Done => {
                // Observed after the write: a grant seems to begin later than it does, never
                // earlier.
                observe(gateway, &next);
                return Ok(reply);
            }
            Written::Lost => {}
            Written::GateMoved => {
                return Err(
                    "the store restarted and is not approved yet: it may have forgotten promises".into()
                );
            }
        }
    }
    Err("too many messages at a time".to_owned())
}

/// Reads the own acceptor, so that its grants are watched.
pub async fn look<P: Ports>(gateway: &Arc<Gateway<P>>) -> Option<Acceptor> {
    let (_, acceptor) = gateway.store().acceptor().await.ok()?;
    observe(gateway, &acceptor);
    Some(acceptor)
}

fn observe<P: Ports>(gateway: &Gateway<P>, acceptor: &Acceptor) -> Moment {
    let now = gateway.now();
    gateway.authority.watch.lock().observe(acceptor, now);
    now
}
