//! The peers' bench: the real peer listener over mutual TLS, with a scripted region behind it.

use crate::contract::Door;
use crate::net::support::{Pki, region};
use crate::support::*;
use onceway::ports::body::full;
use onceway::ports::peers::{Forward, ForwardReply, PeerError, PeerMessage, PeerReply, Pong, Question};
use onceway::server::peer::{PeerLimits, listen};
use onceway::server::{Listeners, PeerService};
use onceway_lab::contract::peers::{PeerBehaviour, PeersBench, pong};
use std::future::pending;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// The way from `eu`, whose peers are under test, to its peer `us`.
pub struct Link {
    peers: HttpPeers,
    peer: Arc<Played>,
    house: Arc<tokio::sync::Mutex<House>>,
}

struct Played {
    behaviour: Mutex<PeerBehaviour>,
    pong: Mutex<Pong>,
    reply: Mutex<PeerReply>,
    arrived: Mutex<Vec<Forward>>,
    asked: Mutex<Vec<Question>>,
    to_break: UnboundedSender<()>,
    breaks: AtomicU64,
    reached: AtomicU64,
}

struct House {
    door: Door,
    identity: PeerIdentity,
    open: Option<Listeners>,
    openings: u64,
    broken: u64,
}

/// The region, as it is reached since one opening.
struct Opening {
    number: u64,
    played: Arc<Played>,
}

impl Link {
    pub async fn start() -> Link {
        let pki = Pki::new(&["eu", "us"]);
        let door = Door::new();
        let addresses = BTreeMap::from([(region("us"), door.address.to_string())]);
        let peers = HttpPeers::new(&pki.identity("eu"), addresses);
        let identity = pki.identity("us");
        let house = House { door, identity, open: None, openings: 0, broken: 0 };
        let house = Arc::new(tokio::sync::Mutex::new(house));
        let (to_break, broken) = unbounded_channel();
        let peer = Arc::new(Played {
            behaviour: Mutex::new(PeerBehaviour::Hang),
            pong: Mutex::new(pong()),
            reply: Mutex::new(PeerReply::Done),
            arrived: Mutex::default(),
            asked: Mutex::default(),
            to_break,
            breaks: AtomicU64::new(0),
            reached: AtomicU64::new(0),
        });
        tokio::spawn(break_connections(broken, house.clone(), peer.clone()));
        Link { peers, peer, house }
    }
}

/// At once, so that no peer gets a notice. It listens again, so that a resend is seen.
async fn break_connections(
    mut broken: UnboundedReceiver<()>,
    house: Arc<tokio::sync::Mutex<House>>,
    peer: Arc<Played>,
) {
    while let Some(()) = broken.recv().await {
        let mut house = house.lock().await;
        if let Some(open) = house.open.take() {
            drop(open);
            house.listen(&peer).await;
        }
        house.broken += 1;
    }
}

impl House {
    async fn listen(&mut self, peer: &Arc<Played>) {
        // The listener before may still be closing.
        let listener = found("the port to be free", async || self.door.open().ok()).await;
        let mut listeners = Listeners::new(Duration::ZERO);
        self.openings += 1;
        let opening = Arc::new(Opening { number: self.openings, played: peer.clone() });
        listen(&mut listeners, listener, &self.identity, opening, PeerLimits::default());
        self.open = Some(listeners);
    }
}

impl PeerService for Opening {
    type Place = ();

    fn hears(&self, _from: &RegionName, _said: &PeerMessage<'_>) -> Result<(), String> {
        Ok(())
    }

    fn place(&self, _head: &Forward, _bytes: usize) -> Result<(), Box<ForwardReply>> {
        Ok(())
    }

    async fn forward(self: Arc<Self>, _from: RegionName, forward: Forward, _place: ()) -> ForwardReply {
        let peer = &self.played;
        peer.arrived.lock().unwrap().push(forward);
        let behaviour = peer.behaviour.lock().unwrap().clone();
        match behaviour {
            PeerBehaviour::Answer { after, status, body } => {
                wait::pause(after).await;
                let mut response = Response::new(full(body));
                *response.status_mut() = StatusCode::from_u16(status).unwrap();
                ForwardReply::Answer(response)
            }
            PeerBehaviour::NotOwner { epoch } => ForwardReply::NotOwner { epoch },
            PeerBehaviour::BreakAfterReading => peer.breaks_off().await,
            PeerBehaviour::Refuse | PeerBehaviour::Hang => pending().await,
        }
    }

    async fn pong(self: Arc<Self>) -> Pong {
        let peer = &self.played;
        peer.reached.store(self.number, SeqCst);
        if matches!(*peer.behaviour.lock().unwrap(), PeerBehaviour::Hang) {
            return pending().await;
        }
        peer.pong.lock().unwrap().clone()
    }

    async fn ask(self: Arc<Self>, _from: RegionName, question: Question) -> PeerReply {
        let peer = &self.played;
        peer.asked.lock().unwrap().push(question);
        let behaviour = peer.behaviour.lock().unwrap().clone();
        match behaviour {
            PeerBehaviour::Answer { .. } | PeerBehaviour::NotOwner { .. } => {
                peer.reply.lock().unwrap().clone()
            }
            PeerBehaviour::BreakAfterReading => peer.breaks_off().await,
            PeerBehaviour::Refuse | PeerBehaviour::Hang => pending().await,
        }
    }
}

impl Played {
    /// Breaks the connection, and with it all calls that wait here.
    async fn breaks_off<T>(&self) -> T {
        self.breaks.fetch_add(1, SeqCst);
        self.to_break.send(()).unwrap();
        pending().await
    }
}

impl Link {
    /// Waits until all orders to break connections are done, and the caller has a working
    /// connection. A broken stream is noticed before its connection is. A call in between rightly
    /// fails at once, whatever the peer does by then.
    async fn is_mended(&self) {
        until("a connection that nobody breaks", async || {
            let house = self.house.lock().await;
            let (openings, broken) = (house.openings, house.broken);
            drop(house);
            if broken < self.peer.breaks.load(SeqCst) {
                return false;
            }
            drop(self.peers.ping(&region("us"), PATIENCE).await);
            self.peer.reached.load(SeqCst) == openings
        })
        .await;
    }
}

impl PeersBench for Link {
    type Peers = HttpPeers;
    type Clock = SystemClock;

    fn peers(&self) -> &HttpPeers {
        &self.peers
    }

    fn clock(&self) -> &SystemClock {
        &SystemClock
    }

    async fn behave(&self, behaviour: PeerBehaviour) {
        let before = self.peer.behaviour.lock().unwrap().clone();
        if matches!(before, PeerBehaviour::BreakAfterReading) {
            self.is_mended().await;
        }
        let mut house = self.house.lock().await;
        *self.peer.behaviour.lock().unwrap() = behaviour.clone();
        self.peer.arrived.lock().unwrap().clear();
        self.peer.asked.lock().unwrap().clear();
        if !matches!(behaviour, PeerBehaviour::Refuse) {
            if house.open.is_none() {
                house.listen(&self.peer).await;
            }
            return;
        }
        if let Some(open) = house.open.take() {
            open.stop().await;
        }
        // Until the end of the connection is noticed here, the result of a send is rightly unknown.
        let ping = async || self.peers.ping(&region("us"), PATIENCE).await;
        until("a refused connection", async || matches!(ping().await, Err(PeerError::NotSent(_)))).await;
    }

    async fn set_pong(&self, pong: Pong) {
        *self.peer.pong.lock().unwrap() = pong;
    }

    async fn arrived(&self) -> Vec<Forward> {
        self.peer.arrived.lock().unwrap().clone()
    }

    async fn set_reply(&self, reply: PeerReply) {
        *self.peer.reply.lock().unwrap() = reply;
    }

    async fn asked(&self) -> Vec<Question> {
        self.peer.asked.lock().unwrap().clone()
    }
}
