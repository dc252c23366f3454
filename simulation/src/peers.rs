//! Calls between regions, made directly, over links that can be told to fail.
//!
//! Neighbours: whatever answers for a region registers here as a [`Region`] (a test, or the gateway itself). A caller that gives up
//! takes its call with it, as a closed stream does; work that must outlive it is the handler's to detach. It must not resend.

use std::collections::BTreeMap;
use std::future::{Future, pending};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use onceway::ports::Peers;
use onceway::ports::peers::{Forward, ForwardReply, PeerError, Pong, Question, Said, Told};
use onceway::protocol::region::RegionName;
use tokio::time::timeout;

use crate::clock::pause;
use crate::letters::{Letter, Post};
use crate::process::Process;

/// A future of a [`Region`].
pub type Answering<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// What was answered, or why the message was not heard.
type Heard<T> = Result<T, String>;

/// What answers for a region.
pub trait Region: Send + Sync {
    /// Whether that region may say this here, or what it is told: the peer listener asks so before anything else.
    fn hears(&self, _from: &RegionName, _said: &Said<'_>) -> Result<(), String> {
        Ok(())
    }

    /// Answers a forward from `from`.
    fn forward(&self, from: RegionName, forward: Forward) -> Answering<'_, ForwardReply>;

    /// Answers a ping.
    fn pong(&self) -> Answering<'_, Pong>;

    /// Answers a question of `from`.
    fn ask(&self, from: RegionName, question: Question) -> Answering<'_, Told>;
}

/// What a link does with calls, from the next one on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LinkMode {
    /// Carries them.
    #[default]
    Up,
    /// Refuses connections: nothing was sent, surely.
    Refuse,
    /// Loses the request on its way: the peer never saw it, but the caller cannot know.
    LoseRequest,
    /// Loses the reply on its way back: the peer did it, but the caller cannot know.
    LoseReply,
    /// Swallows everything: nothing arrives, nothing comes back, nothing breaks.
    Silent,
    /// Carries requests and swallows replies: the peer did it, nothing comes back, nothing breaks.
    Deaf,
}

/// What answers for a region, and the process that it is part of.
#[derive(Clone)]
struct Plugged {
    region: Arc<dyn Region>,
    process: Process,
}

impl Plugged {
    /// Answers as a listener of that process would: not at all while it is paused, with a broken connection once it is dead.
    async fn serve<'a, T>(
        self,
        handle: impl FnOnce(Arc<dyn Region>) -> Answering<'a, T>,
    ) -> Result<T, PeerError> {
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
        reply.ok_or_else(|| PeerError::Unknown("connection reset".to_owned()))
    }
}

#[derive(Default)]
struct Inner {
    regions: BTreeMap<RegionName, Plugged>,
    links: BTreeMap<(RegionName, RegionName), (LinkMode, Duration)>,
    /// What becomes of single kinds of letters from the one to the other; the others are carried.
    letters: BTreeMap<(RegionName, RegionName, Letter), Post>,
    /// Calls that were begun.
    events: u64,
    /// Of these, those for the sake of a key.
    hops: u64,
}

/// The network between the regions. Cheap to clone; all clones are the same network.
#[derive(Clone, Default)]
pub struct Network(Arc<Mutex<Inner>>);

impl Network {
    /// Plugs in what answers for a region; it replaces what did before.
    pub fn plug(&self, name: RegionName, region: Arc<dyn Region>) {
        self.plug_process(name, region, Process::default());
    }

    /// Plugs in what answers for a region as part of this process: calls to it wait while it is paused, and break when it dies.
    pub fn plug_process(&self, name: RegionName, region: Arc<dyn Region>, process: Process) {
        self.lock().regions.insert(name, Plugged { region, process });
    }

    /// Unplugs all regions. What is plugged in reaches the network, and the network it: until one lets go, neither is ever freed.
    pub fn unplug_all(&self) {
        self.lock().regions.clear();
    }

    /// Sets what the link from `from` to `to` does with calls, and how long each direction takes.
    pub fn set_link(&self, from: &RegionName, to: &RegionName, mode: LinkMode, one_way: Duration) {
        self.lock().links.insert((from.clone(), to.clone()), (mode, one_way));
    }

    /// Sets what becomes of letters of this kind from `from` to `to`, from the next one on; `None`: they are carried as all are.
    pub fn set_letters(&self, from: &RegionName, to: &RegionName, letter: Letter, post: Option<Post>) {
        let letters = &mut self.lock().letters;
        let key = (from.clone(), to.clone(), letter);
        match post {
            Some(post) => letters.insert(key, post),
            None => letters.remove(&key),
        };
    }

    fn post(&self, from: &RegionName, to: &RegionName, letter: Letter) -> Option<Post> {
        self.lock().letters.get(&(from.clone(), to.clone(), letter)).copied()
    }

    /// The port by which `from` reaches the others.
    pub fn peers(&self, from: &RegionName) -> SimPeers {
        SimPeers { network: self.clone(), from: from.clone(), process: Process::default() }
    }

    fn way(&self, from: &RegionName, to: &RegionName) -> Option<(Plugged, LinkMode, Duration)> {
        let mut inner = self.lock();
        inner.events += 1;
        let region = inner.regions.get(to)?.clone();
        let (mode, one_way) = inner.links.get(&(from.clone(), to.clone())).copied().unwrap_or_default();
        Some((region, mode, one_way))
    }

    /// Calls between regions that were begun so far.
    pub(crate) fn events(&self) -> u64 {
        self.lock().events
    }

    /// Of these, those for the sake of a key: forwards, and what is lodged elsewhere or taken back.
    pub(crate) fn hops(&self) -> u64 {
        self.lock().hops
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
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
    /// The same peers, as this process reaches them.
    pub(crate) fn of(self, process: &Process) -> Self {
        Self { process: process.clone(), ..self }
    }

    async fn call<'a, T>(
        &self,
        to: &RegionName,
        handle: impl FnOnce(Arc<dyn Region>) -> Answering<'a, Heard<T>>,
    ) -> Result<T, PeerError> {
        self.process.runs().await;
        let replied = self.carry(to, handle).await;
        self.process.runs().await;
        replied
    }

    /// A call that is given up after `within`.
    async fn call_within<'a, T>(
        &self,
        to: &RegionName,
        within: Duration,
        post: Option<Post>,
        handle: impl FnOnce(Arc<dyn Region>) -> Answering<'a, Heard<T>>,
    ) -> Result<T, PeerError> {
        self.process.runs().await;
        let carried = async {
            match post {
                None => {}
                Some(Post::Lost) => pending().await,
                Some(Post::Late(by)) => pause(by).await,
            }
            self.carry(to, handle).await
        };
        let replied = timeout(within, carried).await;
        self.process.runs().await;
        replied.unwrap_or_else(|_| Err(PeerError::Unknown(format!("no reply within {within:?}"))))
    }

    /// What was answered; a refusal did nothing, as the listener's.
    async fn carry<'a, T>(
        &self,
        to: &RegionName,
        handle: impl FnOnce(Arc<dyn Region>) -> Answering<'a, Heard<T>>,
    ) -> Result<T, PeerError> {
        self.carried(to, handle).await?.map_err(PeerError::NotSent)
    }

    async fn carried<'a, T>(
        &self,
        to: &RegionName,
        handle: impl FnOnce(Arc<dyn Region>) -> Answering<'a, T>,
    ) -> Result<T, PeerError> {
        let Some((plugged, mode, one_way)) = self.network.way(&self.from, to) else {
            return Err(PeerError::NotSent(format!("{to} is not in the peers' list")));
        };
        match mode {
            LinkMode::Refuse => Err(PeerError::NotSent("connection refused".to_owned())),
            LinkMode::Silent => pending().await,
            LinkMode::LoseRequest => {
                pause(one_way).await;
                Err(PeerError::Unknown("connection reset".to_owned()))
            }
            LinkMode::Up => {
                pause(one_way).await;
                let reply = plugged.serve(handle).await?;
                pause(one_way).await;
                Ok(reply)
            }
            LinkMode::LoseReply => {
                pause(one_way).await;
                plugged.serve(handle).await?;
                pause(one_way).await;
                Err(PeerError::Unknown("connection reset".to_owned()))
            }
            LinkMode::Deaf => {
                pause(one_way).await;
                plugged.serve(handle).await?;
                pending().await
            }
        }
    }
}

impl Peers for SimPeers {
    async fn forward(&self, to: &RegionName, forward: Forward) -> Result<ForwardReply, PeerError> {
        let from = self.from.clone();
        self.network.lock().hops += 1;
        let handle = |region: Arc<dyn Region>| -> Answering<'_, Heard<ForwardReply>> {
            Box::pin(async move {
                region.hears(&from, &Said::Forward)?;
                Ok(region.forward(from, forward).await)
            })
        };
        self.call(to, handle).await
    }

    async fn ping(&self, to: &RegionName, within: Duration) -> Result<Pong, PeerError> {
        let from = self.from.clone();
        let handle = |region: Arc<dyn Region>| -> Answering<'_, Heard<Pong>> {
            Box::pin(async move {
                region.hears(&from, &Said::Ping)?;
                Ok(region.pong().await)
            })
        };
        self.call_within(to, within, None, handle).await
    }

    async fn ask(&self, to: &RegionName, question: Question, within: Duration) -> Result<Told, PeerError> {
        let from = self.from.clone();
        let for_a_key =
            matches!(question, Question::Lodge(_) | Question::LodgeAnswer { .. } | Question::Void { .. });
        self.network.lock().hops += u64::from(for_a_key);
        let post = self.network.post(&self.from, to, Letter::of(&question));
        let handle = |region: Arc<dyn Region>| -> Answering<'_, Heard<Told>> {
            Box::pin(async move {
                region.hears(&from, &Said::Question(&question))?;
                Ok(region.ask(from, question).await)
            })
        };
        self.call_within(to, within, post, handle).await
    }
}
