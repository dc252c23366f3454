//! The simulated sides of the contract's benches.
//!
//! Each request of a bench is one of the simulation's switches, and adds no behaviour.

use crate::shared::*;
use http::{HeaderValue, StatusCode};
use onceway::ports::body;
use onceway::ports::store::StoreError;
use onceway::ports::{Authority, Peers, Upstream};
use onceway_lab::contract::peers::{PeerBehaviour, PeersBench, pong};
use onceway_lab::contract::replication::{REGIONS, ReplicationBench};
use onceway_lab::contract::store::{Foreign, StoreBench, asked};
use onceway_lab::contract::upstream::{Arrived, ProbeBehaviour, UpstreamBehaviour, UpstreamBench};
use simulation::clock::SimClock;
use simulation::peers::SimPeers;
use simulation::upstream::SimUpstream;

fn three() -> (World, SimPorts) {
    let names = [region("eu"), region("us"), region("ap")];
    let world = World::new(1, &names, false);
    let ports = world.ports(&names[0]);
    (world, ports)
}

/// Two regions' stores; the one under test is `eu`'s, behind the wrapper `S`.
pub struct Stores<S> {
    world: World,
    store: S,
}

impl<S> Stores<S> {
    pub fn new(wrap: impl FnOnce(SimStore) -> S) -> Self {
        let (world, ports) = three();
        world.cluster.set_latency(&region("eu"), ms(2));
        // The row of `us` must be its first attempt, so it must not see the tested store's rows.
        world.cluster.hold(&region("eu"), &region("us"), true);
        Self { store: wrap(ports.store().clone()), world }
    }
}

impl<S: KeyStore + Replica + Upkeep + Jobs> StoreBench for Stores<S> {
    type Store = S;

    fn store(&self) -> &S {
        &self.store
    }

    fn origin(&self) -> Origin {
        self.world.cluster.origin(&region("eu"))
    }

    fn peers(&self) -> Vec<Origin> {
        vec![self.world.cluster.origin(&region("us")), self.world.cluster.origin(&region("ap"))]
    }

    fn tenant(&self, name: &str) -> Tenant {
        Tenant::parse(name).unwrap()
    }

    async fn arrives(&self, id: &KeyId, state: Foreign) -> Token {
        let us = self.world.cluster.store(&region("us"));
        let gate = us.gate().await.unwrap();
        us.approve(gate.version, &gate.running).await.unwrap();
        // Its tokens are of the epoch that the store under test has adopted.
        let gate = us.gate().await.unwrap();
        let adopted = self.world.cluster.store(&region("eu")).gate().await.unwrap().state;
        if let Some(state) = adopted.filter(|state| gate.state.as_ref() != Some(state)) {
            us.set_gate(gate.version, &state).await.unwrap();
        }
        // No suite draws this nonce: another attempt than any of the store under test.
        let ask = asked(id, u128::MAX, us.gate().await.unwrap().version);
        let ClaimReply::Won { token, .. } = us.claim(&ask).await.unwrap() else { panic!("not won") };
        let attempt = Attempt { id: id.clone(), token, nonce: ask.terms.nonce };
        let answer = Answer { status: 200, headers: Vec::new(), body: AnswerBody::NotKept };
        let written = match state {
            Foreign::Claimed => Written::Done,
            Foreign::InDoubt => us.doubt(&attempt, None).await.unwrap(),
            Foreign::Released => us.release(&attempt).await.unwrap(),
            Foreign::Settled => us.settle(&attempt, &answer).await.unwrap(),
        };
        assert_eq!(written, Written::Done);
        token
    }

    async fn beats(&self) {
        let us = self.world.cluster.store(&region("us"));
        us.approve(us.gate().await.unwrap().version, &us.gate().await.unwrap().running).await.unwrap();
        let beat = us.beat(None).await.unwrap().unwrap();
        let shown = || async {
            let all = self.world.cluster.store(&region("eu")).heartbeats().await.unwrap();
            all.iter().any(|shown| shown.origin == self.peers()[0] && shown.seq == beat.seq)
        };
        eventually("the heartbeat to arrive", shown).await.unwrap();
    }

    async fn restart(&self) {
        self.world.cluster.restart(&region("eu"));
    }

    async fn pass(&self, span: Duration) {
        self.world.cluster.observes(&region("eu"), span);
        sleep(span).await;
    }
}

/// Longer than anything that a suite does while a copy runs.
const COPIED: Duration = ms(60_000);

pub struct Three {
    world: World,
    names: [RegionName; REGIONS],
    stores: Vec<SimStore>,
}

impl Three {
    pub fn new() -> Self {
        let names = ["eu", "us", "ap"].map(region);
        let world = World::new(1, &names, false);
        for name in &names {
            // A commit after a cut must not be in the same moment.
            world.cluster.set_latency(name, ms(2));
        }
        let stores = names.iter().map(|name| world.cluster.store(name)).collect();
        Self { world, names, stores }
    }

    async fn is_copied(&self, from: usize, to: usize) -> Result<(), String> {
        eventually("everything to be copied", || async {
            let all = self.stores[to].subscriptions().await.unwrap();
            all.iter().any(|one| one.from == self.names[from].as_str() && one.ready && one.streaming)
        })
        .await
    }

    pub fn forget(&self, region: usize) {
        self.world.cluster.destroy(&self.names[region]);
        self.world.cluster.rebuild(&self.names[region], 1);
    }
}

/// Acts on a link, each of which is one switch of the cluster.
macro_rules! switches {
    ($($act:ident: $switch:ident($($how:expr)?);)*) => {
        $(async fn $act(&self, from: usize, to: usize) -> Result<(), String> {
            self.world.cluster.$switch(&self.names[from], &self.names[to] $(, $how)?);
            Ok(())
        })*
    };
}

impl ReplicationBench for Three {
    type Store = SimStore;

    switches! {
        cut: hold(true);
        mend: hold(false);
        stall: stall(true);
        flow: stall(false);
        lose_slot: lose_slot();
        begin_reseed: reseed(COPIED);
    }

    fn store(&self, region: usize) -> &SimStore {
        &self.stores[region]
    }

    fn origin(&self, region: usize) -> Origin {
        self.world.cluster.origin(&self.names[region])
    }

    async fn shows(&self, to: usize, from: usize, beat: u64) -> Result<(), String> {
        let origin = self.origin(from);
        eventually("a heartbeat to arrive", || async {
            let beats = self.stores[to].heartbeats().await.unwrap();
            beats.iter().any(|one| one.origin == origin && one.seq >= beat)
        })
        .await
    }

    async fn crash(&self, region: usize) -> Result<(), String> {
        self.world.cluster.crash(&self.names[region]);
        Ok(())
    }

    async fn sent(&self, _from: usize, _to: usize) -> Result<(), String> {
        // A link has no delay here: a committed row is there, or stalled.
        sleep(ms(10)).await;
        Ok(())
    }

    async fn reseed(&self, from: usize, to: usize) -> Result<(), String> {
        self.world.cluster.reseed(&self.names[from], &self.names[to], ms(20));
        self.is_copied(from, to).await
    }

    async fn copied(&self, from: usize, to: usize) -> Result<(), String> {
        sleep(COPIED).await;
        self.is_copied(from, to).await
    }

    async fn claim_unheard(
        &self,
        region: usize,
        ask: &ClaimAsk,
    ) -> Result<Result<ClaimReply, StoreError>, String> {
        let cluster = &self.world.cluster;
        cluster.set_mode(&self.names[region], StoreMode::LoseReplies(ms(10)));
        let heard = self.stores[region].claim(ask).await;
        cluster.set_mode(&self.names[region], StoreMode::Up);
        Ok(heard)
    }
}

async fn eventually<F: Future<Output = bool>>(what: &str, holds: impl Fn() -> F) -> Result<(), String> {
    let waited = async {
        while !holds().await {
            sleep(ms(1)).await;
        }
    };
    let waited = tokio::time::timeout(ms(10_000), waited).await;
    waited.map_err(|_| format!("waited in vain for {what}"))
}

/// A peer `us` of `eu`; the peers under test are `eu`'s, behind the wrapper `P`.
pub struct Link<P> {
    world: World,
    ports: SimPorts,
    peers: P,
    peer: Arc<Played>,
}

struct Played {
    behaviour: Mutex<PeerBehaviour>,
    pong: Mutex<Pong>,
    arrived: Mutex<Vec<Forward>>,
    reply: Mutex<PeerReply>,
    asked: Mutex<Vec<Question>>,
}

impl Region for Played {
    fn forward(&self, _from: RegionName, forward: Forward) -> Answering<'_, ForwardReply> {
        self.arrived.lock().unwrap().push(forward);
        let behaviour = self.behaviour.lock().unwrap().clone();
        Box::pin(async move {
            match behaviour {
                PeerBehaviour::Answer { after, status, body } => {
                    sleep(after).await;
                    let mut response = Response::new(body::full(body));
                    *response.status_mut() = StatusCode::from_u16(status).unwrap();
                    ForwardReply::Answer(response)
                }
                PeerBehaviour::NotOwner { epoch } => ForwardReply::NotOwner { epoch },
                PeerBehaviour::Hang => std::future::pending().await,
                // The link produces it: the handler's answer does not arrive.
                PeerBehaviour::Refuse | PeerBehaviour::BreakAfterReading => {
                    ForwardReply::NotOwner { epoch: 0 }
                }
            }
        })
    }

    fn pong(&self) -> Answering<'_, Pong> {
        let hangs = matches!(*self.behaviour.lock().unwrap(), PeerBehaviour::Hang);
        let pong = self.pong.lock().unwrap().clone();
        Box::pin(async move { if hangs { std::future::pending().await } else { pong } })
    }

    fn ask(&self, _from: RegionName, question: Question) -> Answering<'_, PeerReply> {
        self.asked.lock().unwrap().push(question);
        let hangs = matches!(*self.behaviour.lock().unwrap(), PeerBehaviour::Hang);
        let reply = self.reply.lock().unwrap().clone();
        Box::pin(async move { if hangs { std::future::pending().await } else { reply } })
    }
}

impl<P> Link<P> {
    pub fn new(wrap: impl FnOnce(SimPeers) -> P) -> Self {
        let (world, ports) = three();
        let peer = Arc::new(Played {
            behaviour: Mutex::new(PeerBehaviour::Hang),
            pong: Mutex::new(pong()),
            arrived: Mutex::default(),
            reply: Mutex::new(PeerReply::Done),
            asked: Mutex::default(),
        });
        world.network.plug(region("us"), peer.clone());
        Self { peers: wrap(ports.peers().clone()), world, ports, peer }
    }
}

impl<P: Peers> PeersBench for Link<P> {
    type Peers = P;
    type Clock = SimClock;

    fn peers(&self) -> &P {
        &self.peers
    }

    fn clock(&self) -> &SimClock {
        self.ports.clock()
    }

    async fn behave(&self, behaviour: PeerBehaviour) {
        let mode = match behaviour {
            PeerBehaviour::Refuse => LinkMode::Refuse,
            PeerBehaviour::BreakAfterReading => LinkMode::LoseReply,
            PeerBehaviour::Answer { .. } | PeerBehaviour::NotOwner { .. } | PeerBehaviour::Hang => {
                LinkMode::Up
            }
        };
        self.world.network.set_link(&region("eu"), &region("us"), mode, ms(3));
        self.peer.arrived.lock().unwrap().clear();
        self.peer.asked.lock().unwrap().clear();
        *self.peer.behaviour.lock().unwrap() = behaviour;
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

/// The upstream of `eu`, behind the wrapper `U`.
pub struct Service<U> {
    world: World,
    ports: SimPorts,
    upstream: U,
    forgotten: Mutex<usize>,
}

impl<U> Service<U> {
    pub fn new(wrap: impl FnOnce(SimUpstream) -> U) -> Self {
        let (world, ports) = three();
        Self { upstream: wrap(ports.upstream().clone()), world, ports, forgotten: Mutex::new(0) }
    }
}

impl<U: Upstream> UpstreamBench for Service<U> {
    type Upstream = U;
    type Clock = SimClock;

    fn upstream(&self) -> &U {
        &self.upstream
    }

    fn clock(&self) -> &SimClock {
        self.ports.clock()
    }

    async fn behave(&self, behaviour: UpstreamBehaviour) {
        let mode = match behaviour {
            UpstreamBehaviour::Answer { after, status, body } => {
                UpstreamMode::Answer { after, status, body, effect: true }
            }
            UpstreamBehaviour::Refuse => UpstreamMode::Refuse,
            UpstreamBehaviour::BreakAfterReading => UpstreamMode::EffectThenDrop,
            UpstreamBehaviour::Hang => UpstreamMode::Hang,
            UpstreamBehaviour::HangInBody => UpstreamMode::HangInBody,
        };
        self.world.upstreams.set_mode(&region("eu"), mode);
        *self.forgotten.lock().unwrap() = self.world.upstreams.arrivals(&region("eu")).len();
    }

    async fn behave_probed(&self, behaviour: ProbeBehaviour) {
        let probes = match behaviour {
            ProbeBehaviour::Happened { status, body } => ProbeMode::Happened { status, body },
            ProbeBehaviour::DidNotHappen => ProbeMode::DidNotHappen,
            ProbeBehaviour::UnderWay | ProbeBehaviour::Garbage | ProbeBehaviour::Refuse => {
                ProbeMode::CannotSay
            }
            ProbeBehaviour::Hang => ProbeMode::Silent,
        };
        let answer =
            UpstreamBehaviour::Answer { after: Duration::ZERO, status: 200, body: Default::default() };
        self.behave(answer).await;
        self.world.upstreams.set_probes(&region("eu"), probes);
    }

    async fn arrived(&self) -> Vec<Arrived> {
        let forgotten = *self.forgotten.lock().unwrap();
        let arrivals = self.world.upstreams.arrivals(&region("eu")).split_off(forgotten);
        let twice = |headers: &http::HeaderMap| {
            headers.get_all("x-twice").iter().map(HeaderValue::as_bytes).map(Vec::from).collect()
        };
        let seen = |arrival: simulation::upstream::Arrival| Arrived {
            method: arrival.method,
            target: arrival.target.to_string(),
            body: arrival.body,
            twice: twice(&arrival.headers),
        };
        arrivals.into_iter().map(seen).collect()
    }
}
