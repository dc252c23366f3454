//! Calls between regions, made directly, over links that can be made to fail.
//!
//! A caller that gives up takes its call with it, as a closed stream does. A handler must detach
//! work that has to outlive its caller.

use std::collections::BTreeMap;
use std::future::{Future, pending};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use onceway::ports::Peers;
use onceway::ports::peers::{Forward, ForwardReply, PeerError, PeerMessage, PeerReply, Pong, Question};
use onceway::protocol::region::RegionName;
use tokio::time::timeout;

use crate::clock::pause;
use crate::letters::{Letter, Post};
use crate::process::{Process, locked};

/// A future of a [`Region`].
pub type Answering<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

type Called<T> = Result<T, PeerError>;

/// The answer, or the reason why the region refused the message.
type Heard<T> = Result<T, String>;

/// The part of a region that answers calls.
pub trait Region: Send + Sync {
    /// Checks if that region may send this message here, as the peer listener does first of all.
    fn hears(&self, _from: &RegionName, _said: &PeerMessage<'_>) -> Result<(), String> {
        Ok(())
    }

    /// Answers a forward from `from`.
    fn forward(&self, from: RegionName, forward: Forward) -> Answering<'_, ForwardReply>;

    /// Answers a ping.
    fn pong(&self) -> Answering<'_, Pong>;

    /// Answers a question of `from`.
    fn ask(&self, from: RegionName, question: Question) -> Answering<'_, PeerReply>;
}

/// The behaviour of a link for calls, from the next one on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LinkMode {
    /// Carries calls.
    #[default]
    Up,
    /// Refuses connections: surely nothing was sent.
    Refuse,
    /// Loses the request on its way: the peer never saw it, but the caller cannot know.
    LoseRequest,
    /// Loses the reply on its way back: the peer acted on it, but the caller cannot know.
    LoseReply,
    /// Swallows everything: nothing arrives, nothing comes back, nothing breaks.
    Silent,
    /// Carries requests and swallows replies: the peer acts, nothing comes back, nothing breaks.
    Deaf,
}

#[derive(Clone)]
struct Plugged {
    region: Arc<dyn Region>,
    process: Process,
}

impl Plugged {
    /// Answers as that process's listener would: not while it is paused, broken once it is dead.
    async fn serve<F: Future>(self, handle: impl FnOnce(Arc<dyn Region>) -> F) -> Called<F::Output> {
        let Self { region, process } = self;
        if process.is_dead() {
            return Err(PeerError::NotSent("connection refused".to_owned()));
        }
        let answering = async {
            process.runs().await;
            let reply = handle(region).await;
            process.runs().await;
            reply
        };
        let reply = process.while_alive(answering).await;
        reply.ok_or_else(reset)
    }
}

fn reset() -> PeerError {
    PeerError::Unknown("connection reset".to_owned())
}

#[derive(Default)]
struct Inner {
    regions: BTreeMap<RegionName, Plugged>,
    links: BTreeMap<(RegionName, RegionName), (LinkMode, Duration)>,
    /// The fates of single kinds of letters from the one to the other. All others are carried.
    letters: BTreeMap<(RegionName, RegionName, Letter), Post>,
    events: u64,
    hops: u64,
}

/// The network between the regions. Cheap to clone; all clones are the same network.
#[derive(Clone, Default)]
pub struct Network(Arc<Mutex<Inner>>);

impl Network {
    /// Plugs in a region. It replaces the one before.
    pub fn plug(&self, name: RegionName, region: Arc<dyn Region>) {
        self.plug_process(name, region, Process::default());
    }

    /// The same, of this process: calls wait while it is paused, and break when it dies.
    pub fn plug_process(&self, name: RegionName, region: Arc<dyn Region>, process: Process) {
        locked(&self.0).regions.insert(name, Plugged { region, process });
    }

    /// Unplugs all regions. They and the network refer to each other, so neither is freed before.
    pub fn unplug_all(&self) {
        locked(&self.0).regions.clear();
    }

    /// Sets the mode of the link from `from` to `to`, and the duration of each direction.
    pub fn set_link(&self, from: &RegionName, to: &RegionName, mode: LinkMode, one_way: Duration) {
        locked(&self.0).links.insert((from.clone(), to.clone()), (mode, one_way));
    }

    /// Sets the fate of letters of this kind from `from` to `to` from now on; `None` is the usual.
    pub fn set_letters(&self, from: &RegionName, to: &RegionName, letter: Letter, post: Option<Post>) {
        let letters = &mut locked(&self.0).letters;
        let key = (from.clone(), to.clone(), letter);
        match post {
            Some(post) => letters.insert(key, post),
            None => letters.remove(&key),
        };
    }

    fn post(&self, from: &RegionName, to: &RegionName, letter: Letter) -> Option<Post> {
        locked(&self.0).letters.get(&(from.clone(), to.clone(), letter)).copied()
    }

    /// The port by which `from` reaches the others.
    pub fn peers(&self, from: &RegionName) -> SimPeers {
        SimPeers { network: self.clone(), from: from.clone(), process: Process::default() }
    }

    fn way(&self, from: &RegionName, to: &RegionName) -> Option<(Plugged, LinkMode, Duration)> {
        let mut inner = locked(&self.0);
        inner.events += 1;
        let region = inner.regions.get(to)?.clone();
        let (mode, one_way) = inner.links.get(&(from.clone(), to.clone())).copied().unwrap_or_default();
        Some((region, mode, one_way))
    }

    /// The number of calls between regions so far.
    pub(crate) fn events(&self) -> u64 {
        locked(&self.0).events
    }

    /// The number of calls for a key: forwards, and claims that are lodged elsewhere or taken back.
    pub(crate) fn hops(&self) -> u64 {
        locked(&self.0).hops
    }
}

/// The peers, as one region reaches them.
#[derive(Clone)]
pub struct SimPeers {
    network: Network,
    from: RegionName,
    process: Process,
}

impl SimPeers {
    pub(crate) fn of(self, process: &Process) -> Self {
        Self { process: process.clone(), ..self }
    }

    /// Calls a peer, and gives up after `within`, if that is said.
    async fn call<T, F: Future<Output = Heard<T>>>(
        &self,
        to: &RegionName,
        within: Option<Duration>,
        post: Option<Post>,
        handle: impl FnOnce(Arc<dyn Region>) -> F,
    ) -> Called<T> {
        self.process.runs().await;
        let carried = async {
            match post {
                None => {}
                Some(Post::Lost) => pending().await,
                Some(Post::Late(by)) => pause(by).await,
            }
            // A refusal did nothing, like the listener's.
            self.carry(to, handle).await?.map_err(PeerError::NotSent)
        };
        let replied = match within {
            Some(within) => timeout(within, carried).await,
            None => Ok(carried.await),
        };
        self.process.runs().await;
        replied.unwrap_or_else(|_| {
            Err(PeerError::Unknown(format!("no reply within {:?}", within.unwrap_or_default())))
        })
    }

    async fn carry<F: Future>(
        &self,
        to: &RegionName,
        handle: impl FnOnce(Arc<dyn Region>) -> F,
    ) -> Called<F::Output> {
        let Some((plugged, mode, one_way)) = self.network.way(&self.from, to) else {
            return Err(PeerError::NotSent(format!("{to} is not in the peers' list")));
        };
        match mode {
            LinkMode::Refuse => Err(PeerError::NotSent("connection refused".to_owned())),
            LinkMode::Silent => pending().await,
            LinkMode::LoseRequest => {
                pause(one_way).await;
                Err(reset())
            }
            LinkMode::Up => {
                pause(one_way).await;
                let reply = plugged.serve(handle).await?;
                pause(one_way).await;
                Ok(reply)
            }
            LinkMode::LoseReply | LinkMode::Deaf => {
                pause(one_way).await;
                plugged.serve(handle).await?;
                if mode == LinkMode::Deaf {
                    return pending().await;
                }
                pause(one_way).await;
                Err(reset())
            }
        }
    }
}

impl Peers for SimPeers {
    async fn forward(&self, to: &RegionName, forward: Forward) -> Called<ForwardReply> {
        let from = self.from.clone();
        locked(&self.network.0).hops += 1;
        let handle = |region: Arc<dyn Region>| async move {
            region.hears(&from, &PeerMessage::FORWARD)?;
            Ok(region.forward(from, forward).await)
        };
        self.call(to, None, None, handle).await
    }

    async fn ping(&self, to: &RegionName, within: Duration) -> Called<Pong> {
        let from = self.from.clone();
        let handle = |region: Arc<dyn Region>| async move {
            region.hears(&from, &PeerMessage::PING)?;
            Ok(region.pong().await)
        };
        self.call(to, Some(within), None, handle).await
    }

    async fn ask(&self, to: &RegionName, question: Question, within: Duration) -> Called<PeerReply> {
        let from = self.from.clone();
        let for_a_key =
            matches!(question, Question::Lodge(_) | Question::LodgeAnswer { .. } | Question::Void(_));
        locked(&self.network.0).hops += u64::from(for_a_key);
        let post = self.network.post(&self.from, to, Letter::of(&question));
        let handle = |region: Arc<dyn Region>| async move {
            region.hears(&from, &question.said())?;
            Ok(region.ask(from, question).await)
        };
        self.call(to, Some(within), post, handle).await
    }
}
