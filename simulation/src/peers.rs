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
use onceway::ports::peers::{Forward, ForwardReply, PeerError, Pong, Question, Told};
use onceway::protocol::region::RegionName;
use tokio::time::timeout;

use crate::clock::pause;

/// A future of a [`Region`].
pub type Answering<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// What answers for a region.
pub trait Region: Send + Sync {
    /// Answers a forward from `from`.
    fn forward(&self, from: RegionName, forward: Forward) -> Answering<'_, ForwardReply>;

    /// Answers a ping.
    fn pong(&self) -> Answering<'_, Pong>;
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
}

#[derive(Default)]
struct Inner {
    regions: BTreeMap<RegionName, Arc<dyn Region>>,
    links: BTreeMap<(RegionName, RegionName), (LinkMode, Duration)>,
}

/// The network between the regions. Cheap to clone; all clones are the same network.
#[derive(Clone, Default)]
pub struct Network(Arc<Mutex<Inner>>);

impl Network {
    /// Plugs in what answers for a region; it replaces what did before.
    pub fn plug(&self, name: RegionName, region: Arc<dyn Region>) {
        self.lock().regions.insert(name, region);
    }

    /// Sets what the link from `from` to `to` does with calls, and how long each direction takes.
    pub fn set_link(&self, from: &RegionName, to: &RegionName, mode: LinkMode, one_way: Duration) {
        self.lock().links.insert((from.clone(), to.clone()), (mode, one_way));
    }

    /// The port by which `from` reaches the others.
    pub fn peers(&self, from: &RegionName) -> SimPeers {
        SimPeers { network: self.clone(), from: from.clone() }
    }

    fn way(&self, from: &RegionName, to: &RegionName) -> Option<(Arc<dyn Region>, LinkMode, Duration)> {
        let inner = self.lock();
        let region = inner.regions.get(to)?.clone();
        let (mode, one_way) = inner.links.get(&(from.clone(), to.clone())).copied().unwrap_or_default();
        Some((region, mode, one_way))
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
}

impl SimPeers {
    async fn call<'a, T>(
        &self,
        to: &RegionName,
        handle: impl FnOnce(Arc<dyn Region>) -> Answering<'a, T>,
    ) -> Result<T, PeerError> {
        let Some((region, mode, one_way)) = self.network.way(&self.from, to) else {
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
                let reply = handle(region).await;
                pause(one_way).await;
                Ok(reply)
            }
            LinkMode::LoseReply => {
                pause(one_way).await;
                handle(region).await;
                pause(one_way).await;
                Err(PeerError::Unknown("connection reset".to_owned()))
            }
        }
    }
}

impl Peers for SimPeers {
    async fn ask(&self, _to: &RegionName, _question: Question, _within: Duration) -> Result<Told, PeerError> {
        Err(PeerError::NotSent("not built yet".to_owned()))
    }

    async fn forward(&self, to: &RegionName, forward: Forward) -> Result<ForwardReply, PeerError> {
        let from = self.from.clone();
        self.call(to, |region| Box::pin(async move { region.forward(from, forward).await })).await
    }

    async fn ping(&self, to: &RegionName, within: Duration) -> Result<Pong, PeerError> {
        let call = self.call(to, |region| Box::pin(async move { region.pong().await }));
        match timeout(within, call).await {
            Ok(reply) => reply,
            Err(_) => Err(PeerError::Unknown(format!("no reply within {within:?}"))),
        }
    }
}
