//! The upstream's bench: a scripted HTTP/1.1 server for requests and for questions to its status
//! address.

use crate::contract::Door;
use crate::net::support::{fed, region};
use crate::support::*;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use onceway::adapters::upstream::{Base, HttpUpstream, ServiceSettings, UpstreamSettings};
use onceway::ports::body::{empty, full};
use onceway::server::Listeners;
use onceway_lab::contract::upstream::{Arrived, ProbeBehaviour, STATUS, UpstreamBehaviour, UpstreamBench};
use std::future::pending;
use tokio::sync::mpsc::UnboundedSender;

pub struct Service {
    upstream: HttpUpstream,
    played: Arc<Played>,
    door: Door,
    open: tokio::sync::Mutex<Option<Listeners>>,
}

struct Played {
    behaviour: Mutex<UpstreamBehaviour>,
    probed: Mutex<ProbeBehaviour>,
    arrived: Mutex<Vec<Arrived>>,
    /// Keeps hanging bodies from ending.
    unended: Mutex<Vec<UnboundedSender<&'static str>>>,
}

impl Service {
    pub async fn start() -> Service {
        let door = Door::new();
        let base = Base::parse(&format!("http://{}", door.address)).unwrap();
        let mut own = ServiceSettings::at(base).unwrap();
        own.bounds.keep_idle = Duration::from_secs(60);
        let upstream = HttpUpstream::new(&UpstreamSettings {
            me: region("eu"),
            own,
            shared: false,
            others: BTreeMap::new(),
            named: BTreeMap::new(),
        });
        let played = Arc::new(Played {
            behaviour: Mutex::new(UpstreamBehaviour::Hang),
            probed: Mutex::new(ProbeBehaviour::Hang),
            arrived: Mutex::default(),
            unended: Mutex::default(),
        });
        Service { upstream, played, door, open: tokio::sync::Mutex::default() }
    }

    async fn listen(&self, wanted: bool) {
        let mut open = self.open.lock().await;
        match (open.take(), wanted) {
            (Some(listeners), false) => {
                listeners.stop().await;
                self.door.is_quiet().await;
            }
            (None, true) => {
                let mut listeners = Listeners::new(Duration::ZERO);
                let played = self.played.clone();
                let serve = move |stream, _, _| serve(stream, played.clone());
                listeners.add(self.door.open().unwrap(), || 100, serve);
                *open = Some(listeners);
            }
            (as_it_is, _) => *open = as_it_is,
        }
    }
}

async fn serve(stream: TcpStream, played: Arc<Played>) {
    let handle = service_fn(move |request| played.clone().handle(request));
    // Broken connections are intended here.
    drop(http1::Builder::new().serve_connection(TokioIo::new(stream), handle).await);
}

/// Breaks the connection: hyper closes it when a handler fails.
#[derive(Debug, thiserror::Error)]
#[error("broken on purpose")]
struct Broken;

impl Played {
    async fn handle(self: Arc<Self>, request: Request<Incoming>) -> Result<Response<Body>, Broken> {
        let (head, body) = request.into_parts();
        let body = body.collect().await.map_err(|_| Broken)?.to_bytes();
        if head.uri.path() == STATUS {
            let probed = self.probed.lock().unwrap().clone();
            return Ok(said(probed).await);
        }
        self.arrived.lock().unwrap().push(Arrived {
            method: head.method,
            target: head.uri.to_string(),
            body,
            twice: head.headers.get_all("x-twice").iter().map(HeaderValue::as_bytes).map(Vec::from).collect(),
        });
        let behaviour = self.behaviour.lock().unwrap().clone();
        match behaviour {
            UpstreamBehaviour::Answer { after, status, body } => {
                wait::pause(after).await;
                Ok(answer(status, full(body)))
            }
            UpstreamBehaviour::BreakAfterReading => Err(Broken),
            UpstreamBehaviour::HangInBody => {
                let (feed, body) = fed();
                feed.send("the first bytes").unwrap();
                self.unended.lock().unwrap().push(feed);
                Ok(answer(200, body))
            }
            UpstreamBehaviour::Hang | UpstreamBehaviour::Refuse => pending().await,
        }
    }
}

/// The status address's answer, in the form that `onceway_lab::upstream` speaks too.
async fn said(probed: ProbeBehaviour) -> Response<Body> {
    let effect = |status, effect: &'static str, body| {
        let mut response = answer(status, body);
        response.headers_mut().insert("onceway-effect", HeaderValue::from_static(effect));
        response
    };
    match probed {
        ProbeBehaviour::Happened { status, body } => {
            let mut response = effect(200, "happened", full(body));
            response.headers_mut().insert("onceway-effect-status", HeaderValue::from(status));
            response
        }
        ProbeBehaviour::DidNotHappen => effect(404, "none", empty()),
        ProbeBehaviour::UnderWay => effect(202, "pending", empty()),
        ProbeBehaviour::Garbage => effect(200, "none of your business", full(Bytes::from_static(b"?"))),
        ProbeBehaviour::Hang | ProbeBehaviour::Refuse => pending().await,
    }
}

fn answer(status: u16, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::from_u16(status).unwrap();
    response
}

impl UpstreamBench for Service {
    type Upstream = HttpUpstream;
    type Clock = SystemClock;

    fn upstream(&self) -> &HttpUpstream {
        &self.upstream
    }

    fn clock(&self) -> &SystemClock {
        &SystemClock
    }

    async fn behave(&self, behaviour: UpstreamBehaviour) {
        *self.played.behaviour.lock().unwrap() = behaviour.clone();
        self.listen(!matches!(behaviour, UpstreamBehaviour::Refuse)).await;
        self.played.arrived.lock().unwrap().clear();
    }

    async fn behave_probed(&self, behaviour: ProbeBehaviour) {
        *self.played.probed.lock().unwrap() = behaviour.clone();
        self.listen(!matches!(behaviour, ProbeBehaviour::Refuse)).await;
    }

    async fn arrived(&self) -> Vec<Arrived> {
        self.played.arrived.lock().unwrap().clone()
    }
}
