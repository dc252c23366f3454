//! Two regions over mutual TLS in one process: forwards, streamed answers, pings, and the caller's
//! knowledge after a failure. The other region counts its messages: nothing is resent.

use crate::net::support::*;
use onceway::ports::peers::{Beat, PeerMessage, PeerReply, Pong};
use onceway::protocol::speakers::may;
use onceway::server::PeerService;
use onceway::server::peer::listen;
use onceway_lab::contract;
use tokio::io::copy_bidirectional;
use tokio::sync::OwnedSemaphorePermit;

/// Room for a large forward and some small ones.
pub const PLACES: usize = (3 << 20) + 1_000;
pub const PATIENCE: Duration = Duration::from_secs(20);

/// A region that answers by the target's path, and records its messages.
pub struct Region {
    pub seen: Mutex<Vec<(RegionName, Forward)>>,
    pub asked: Mutex<Vec<(RegionName, Question)>>,
    stream: Mutex<Option<Body>>,
    /// One permit for each present forward, and one for each byte of its body.
    pub places: Arc<Semaphore>,
    dropped: mpsc::UnboundedSender<()>,
    serving: AtomicBool,
    pub sender: Mutex<Sender>,
}

struct Gone(mpsc::UnboundedSender<()>);

impl Drop for Gone {
    fn drop(&mut self) {
        let _ = self.0.send(());
    }
}

impl PeerService for Region {
    type Place = OwnedSemaphorePermit;

    fn hears(&self, from: &RegionName, said: &PeerMessage<'_>) -> Result<(), String> {
        may(from, *self.sender.lock().unwrap(), said.kind, said.of).map_err(|why| why.to_string())
    }

    fn place(&self, _head: &Forward, bytes: usize) -> Result<OwnedSemaphorePermit, Box<ForwardReply>> {
        self.places.clone().try_acquire_many_owned(1 + bytes as u32).map_err(|_| {
            let mut refusal = Response::new(full("full"));
            *refusal.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
            Box::new(ForwardReply::Answer(refusal))
        })
    }

    async fn forward(
        self: Arc<Self>,
        from: RegionName,
        forward: Forward,
        place: OwnedSemaphorePermit,
    ) -> ForwardReply {
        assert_eq!(place.num_permits(), 1 + forward.body.len(), "as its length was announced");
        let path = forward.target.path().to_owned();
        self.seen.lock().unwrap().push((from, forward));
        match path.as_str() {
            "/stream" => ForwardReply::Answer(Response::new(self.stream.lock().unwrap().take().unwrap())),
            "/elsewhere" => ForwardReply::NotOwner { epoch: 12 },
            "/hang" => {
                let gone = Gone(self.dropped.clone());
                std::future::pending::<()>().await;
                drop(gone);
                ForwardReply::NotOwner { epoch: 0 }
            }
            _ => {
                let mut answer = Response::new(full("done"));
                *answer.status_mut() = StatusCode::CREATED;
                answer.headers_mut().append("set-cookie", "a".parse().unwrap());
                answer.headers_mut().append("set-cookie", "b".parse().unwrap());
                ForwardReply::Answer(answer)
            }
        }
    }

    async fn pong(self: Arc<Self>) -> Pong {
        Pong { serving: self.serving.load(SeqCst), ..pong() }
    }

    async fn ask(self: Arc<Self>, from: RegionName, question: Question) -> PeerReply {
        self.asked.lock().unwrap().push((from, question));
        PeerReply::Adopted(9)
    }
}

fn pong() -> Pong {
    Pong {
        epoch: 5,
        serving: true,
        beat: Some(Beat { seq: 8, age: Duration::from_nanos(1_234_567) }),
        applied: BTreeMap::from([(Origin { region: region("eu"), generation: 1 }, 3)]),
        ..contract::peers::pong()
    }
}

pub struct Running {
    pub address: String,
    pub region: Arc<Region>,
    pub dropped: mpsc::UnboundedReceiver<()>,
    pub listeners: Listeners,
}

impl Running {
    /// Forwards a request under this identity, over a new connection to it as region `us`.
    pub async fn forwarded(&self, identity: &PeerIdentity) -> Result<ForwardReply, PeerError> {
        soon(dial(identity, "us", &self.address).forward(&region("us"), forward("/"))).await
    }

    pub fn seen(&self) -> usize {
        self.region.seen.lock().unwrap().len()
    }

    #[track_caller]
    pub fn untouched(&self) {
        assert_eq!((self.seen(), self.region.asked.lock().unwrap().len()), (0, 0));
    }

    pub async fn was_reached(&self) {
        until("it to be reached", async || self.seen() > 0).await;
    }

    /// Gives it an answer to `/stream`, and lets its pieces be fed.
    fn streams(&self) -> mpsc::UnboundedSender<&'static str> {
        let (feed, body) = fed();
        *self.region.stream.lock().unwrap() = Some(body);
        feed
    }
}

pub async fn answer(reply: impl Future<Output = Result<ForwardReply, PeerError>>) -> Response<Body> {
    let ForwardReply::Answer(answer) = soon(reply).await.unwrap() else { panic!("an answer was given") };
    answer
}

pub fn views() -> Question {
    Question::Views { after: 7 }
}

pub async fn run(identity: &PeerIdentity, limits: PeerLimits) -> Running {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (tell, dropped) = mpsc::unbounded_channel();
    let region = Arc::new(Region {
        seen: Mutex::default(),
        asked: Mutex::default(),
        stream: Mutex::default(),
        places: Arc::new(Semaphore::new(PLACES)),
        dropped: tell,
        serving: AtomicBool::new(true),
        sender: Mutex::new(Sender::Region),
    });
    let mut listeners = Listeners::new(PATIENCE);
    listen(&mut listeners, listener, identity, region.clone(), limits);
    Running { address, region, dropped, listeners }
}

pub async fn us(limits: PeerLimits) -> (Pki, Running) {
    let pki = Pki::new(&["eu", "us"]);
    let running = run(&pki.identity("us"), limits).await;
    (pki, running)
}

pub fn dial(identity: &PeerIdentity, to: &str, address: &str) -> HttpPeers {
    HttpPeers::new(identity, BTreeMap::from([(region(to), address.to_owned())]))
}

pub fn forward(target: &str) -> Forward {
    let mut headers = HeaderMap::new();
    headers.append("accept", "a".parse().unwrap());
    headers.append("accept", "b".parse().unwrap());
    headers.append("onceway-token", "forged".parse().unwrap());
    Forward {
        id: key_id("acme", "the key\\\"".replace(' ', "-").as_str()),
        principal: None,
        method: Method::PATCH,
        target: target.parse().unwrap(),
        headers,
        body: "body".into(),
        request_id: RequestId(77),
        epoch: 4,
        deadline: Duration::from_millis(1500),
    }
}

pub fn not_sent<T>(result: Result<T, PeerError>) -> String {
    match result.map(drop) {
        Err(PeerError::NotSent(why)) => why,
        other => panic!("this was not surely unsent: {other:?}"),
    }
}

fn unknown<T>(result: Result<T, PeerError>) -> String {
    match result.map(drop) {
        Err(PeerError::Unknown(why)) => why,
        other => panic!("this was not unknown: {other:?}"),
    }
}

/// A front that passes its connections to these addresses in turn, and counts them.
async fn in_turn(addresses: Vec<String>) -> (String, Arc<AtomicUsize>) {
    let front = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, count) = (front.local_addr().unwrap().to_string(), Arc::new(AtomicUsize::new(0)));
    let connections = count.clone();
    tokio::spawn(async move {
        for target in addresses.iter().cycle() {
            let (Ok((mut near, _)), Ok(mut far)) = (front.accept().await, TcpStream::connect(target).await)
            else {
                return;
            };
            count.fetch_add(1, SeqCst);
            tokio::spawn(async move { copy_bidirectional(&mut near, &mut far).await });
        }
    });
    (address, connections)
}

#[tokio::test]
async fn a_gateway_that_stops_serving_hands_over_to_siblings() {
    let pki = Pki::new(&["eu", "us"]);
    let gateway = async || run(&pki.identity("us"), PeerLimits::default()).await;
    let (one, useless, other) = (gateway().await, gateway().await, gateway().await);
    let all = [&one, &useless, &other].map(|region| region.address.clone());
    let (address, _) = in_turn(all.to_vec()).await;
    let (peers, to) = (dial(&pki.identity("eu"), "us", &address), region("us"));
    let feed = one.streams();
    let mut begun = answer(peers.forward(&to, forward("/stream"))).await.into_body();
    for region in [&one, &useless] {
        region.region.serving.store(false, SeqCst);
    }
    let moved = async || {
        peers.forward(&to, forward("/v1/c")).await?;
        let pong = peers.ping(&to, PATIENCE).await?;
        Ok(pong.serving.then_some(()))
    };
    wait::for_some("a gateway that serves", PATIENCE, moved).await.unwrap();
    soon(peers.forward(&to, forward("/v1/c"))).await.unwrap();
    assert_eq!(useless.seen(), 0, "no better than who was there");
    assert!(other.seen() > 0);
    feed.send("still there").unwrap();
    assert_eq!(piece(&mut begun).await.unwrap().unwrap(), "still there");
}

#[tokio::test]
async fn an_abandoned_forward_is_abandoned_at_the_peer() {
    let (pki, mut us) = us(PeerLimits::default()).await;
    let peers = dial(&pki.identity("eu"), "us", &us.address);
    let to = region("us");
    tokio::select! {
        biased;
        _ = peers.forward(&to, forward("/hang")) => panic!("this hangs"),
        () = us.was_reached() => {}
    }
    soon(us.dropped.recv()).await.unwrap();
    // The connection lives on.
    assert_eq!(soon(peers.ping(&to, PATIENCE)).await.unwrap().epoch, 5);
}

#[tokio::test]
async fn one_connection_serves_many_callers_and_is_replaced() {
    let (pki, us) = us(PeerLimits::default()).await;
    let (front, connections) = in_turn(vec![us.address.clone()]).await;
    let relay = Relay::start(front.parse().unwrap()).await.unwrap();
    let peers = Arc::new(dial(&pki.identity("eu"), "us", &relay.local_addr().to_string()));
    let mut callers = JoinSet::new();
    for _ in 0..30 {
        let peers = peers.clone();
        callers.spawn(async move { peers.forward(&region("us"), forward("/")).await.map(drop) });
    }
    for result in soon(callers.join_all()).await {
        result.unwrap();
    }
    assert_eq!(connections.load(SeqCst), 1);
    assert_eq!(us.seen(), 30);

    relay.cut();
    // Until the cut is noticed a call may fail, but never silently and never twice.
    let cut_is_noticed = async {
        while peers.ping(&region("us"), PATIENCE).await.is_ok() {}
        relay.mend();
        while peers.ping(&region("us"), PATIENCE).await.is_err() {}
    };
    soon(cut_is_noticed).await;
    soon(peers.forward(&region("us"), forward("/"))).await.map(drop).unwrap();
    assert_eq!(us.seen(), 31);
}

#[tokio::test]
async fn a_black_hole_is_noticed_by_the_keep_alive() {
    let (pki, us) = us(PeerLimits::default()).await;
    let relay = Relay::start(us.address.parse().unwrap()).await.unwrap();
    let peers = dial(&pki.identity("eu"), "us", &relay.local_addr().to_string());
    let to = region("us");
    soon(peers.ping(&to, PATIENCE)).await.unwrap();
    for direction in [Direction::Forward, Direction::Backward] {
        relay.freeze(direction);
    }
    let why = unknown(soon(peers.forward(&to, forward("/"))).await);
    assert!(why.contains("timed out"), "{why}");
    // The next call does not use it: a connection through the frozen line cannot be made at all.
    not_sent(soon(peers.forward(&to, forward("/"))).await);
    us.untouched();
}

#[tokio::test]
async fn messages_over_their_limit_are_refused_unsent() {
    let (pki, us) = us(PeerLimits { body_limit: 3, question_limit: 3, ..PeerLimits::default() }).await;
    let why = not_sent(us.forwarded(&pki.identity("eu")).await);
    assert!(why.contains("413"), "{why}");
    let peers = dial(&pki.identity("eu"), "us", &us.address);
    let why = not_sent(soon(peers.ask(&region("us"), views(), PATIENCE)).await);
    assert!(why.contains("413") && why.contains("at most 3 bytes"), "{why}");
    us.untouched();
}

/// The name is that of the certificate's region, for a question as for a forward.
#[tokio::test]
async fn messages_carry_the_name_of_their_sender() {
    let (pki, us) = us(PeerLimits::default()).await;
    let peers = dial(&pki.identity("eu"), "us", &us.address);
    assert_eq!(soon(peers.ask(&region("us"), views(), PATIENCE)).await, Ok(PeerReply::Adopted(9)));
    assert_eq!(*us.region.asked.lock().unwrap(), [(region("eu"), views())]);
    us.forwarded(&pki.identity("eu")).await.map(drop).unwrap();
    assert_eq!(us.region.seen.lock().unwrap()[0].0, region("eu"));
}

#[tokio::test]
async fn stopping_lets_a_forward_finish() {
    let (pki, us) = us(PeerLimits::default()).await;
    let peers = dial(&pki.identity("eu"), "us", &us.address);
    let feed = us.streams();
    let answer = answer(peers.forward(&region("us"), forward("/stream"))).await;
    let stopping = tokio::spawn(us.listeners.stop());
    // Once the stop has begun, no new connection gets in.
    let refused = async { while peers.ping(&region("us"), PATIENCE).await.is_ok() {} };
    soon(refused).await;
    assert!(!stopping.is_finished());
    feed.send("last").unwrap();
    drop(feed);
    assert_eq!(text(answer.into_body()).await, "last");
    soon(stopping).await.unwrap();
}

/// A socket that begins no handshake, from an address of this machine.
async fn silent(from: u8, address: &str) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(SocketAddr::from(([127, 0, 0, from], 0))).unwrap();
    soon(socket.connect(address.parse().unwrap())).await.unwrap()
}

#[tokio::test]
async fn sockets_that_show_no_certificate_leave_places_to_peers() {
    let pki = Pki::new(&["eu", "us"]);
    // No handshake is ended while the test runs.
    let limits = PeerLimits { connections: 80, handshake_time: 10 * PATIENCE, ..PeerLimits::default() };
    let us = run(&pki.identity("us"), limits).await;
    let mut strangers = Vec::new();
    for _ in 0..200 {
        strangers.push(silent(2, &us.address).await);
    }
    us.forwarded(&pki.identity("eu")).await.expect("one address has few places");
    for number in 0..200 {
        strangers.push(silent(3 + number, &us.address).await);
    }
    // Another gateway of that region, whose address is known by now.
    us.forwarded(&pki.identity("eu")).await.expect("strangers have half of them");
    assert_eq!(us.seen(), 2);
}
