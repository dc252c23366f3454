//! A process of a rival design: claims a key durably, sends it once, stores the answer and replays
//! it.
//!
//! It has no view, no lease, no fence and no window, so it does not wait for knowledge of other
//! regions. It must not do less for a key than onceway does where one region is enough.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use onceway::gateway::route::{Matched, Policy, Routes};
use onceway::ports::body::{self, Collected};
use onceway::ports::peers::{Forward, ForwardReply, PeerError, Pong, Question, Told};
use onceway::ports::store::StoreError;
use onceway::ports::upstream::{Probe, ProbeReply, Send, SendError};
use onceway::ports::{Body, Dice, Peers, Upstream};
use onceway::protocol::decide::Recovery;
use onceway::protocol::digest::digest;
use onceway::protocol::key::{Key, KeyId, Tenant};
use onceway::protocol::outcome::Outcome;
use onceway::protocol::record::{RequestId, Token};
use onceway::protocol::region::RegionName;
use onceway::protocol::ring::Ring;
use onceway::protocol::versions::{NEWEST, Versions};
use tokio::time::{Instant, sleep, timeout};

use super::table::{Claimed, Row, State, Table};
use super::{Design, Rivals};
use crate::clock::SimClock;
use crate::dice::SimDice;
use crate::peers::{Answering, Region, SimPeers};
use crate::ports::SimPorts;
use crate::process::Process;
use crate::scenario::Scenario;
use crate::store::{Effect, SimStore};
use crate::upstream::SimUpstream;

/// The time between two checks of another region, and the limit for its answer: as a proxy checks
/// the health of its backends.
const CHECK_EVERY: Duration = Duration::from_millis(500);
/// The time for which a region that answered counts as reachable: two checks.
const STAYS_REACHED: Duration = Duration::from_secs(1);
/// The `Retry-After` of the answer to a duplicate.
const RETRY_AFTER: &str = "1";

/// A process.
pub(crate) struct Rival {
    me: RegionName,
    /// True if a key goes to its home region first.
    carries: bool,
    rivals: Arc<Rivals>,
    ring: Arc<Ring>,
    routes: Routes,
    clock: SimClock,
    dice: SimDice,
    store: SimStore,
    peers: SimPeers,
    upstream: SimUpstream,
    process: Process,
    reached: Mutex<BTreeMap<RegionName, Instant>>,
}

/// A request with a key.
struct Asked<'a> {
    id: KeyId,
    policy: &'a Policy,
    head: http::request::Parts,
    body: Bytes,
    request_id: RequestId,
}

impl Rival {
    pub(crate) fn new(
        me: RegionName,
        design: Design,
        rivals: Arc<Rivals>,
        scenario: &Scenario,
        ports: SimPorts,
    ) -> Arc<Self> {
        let SimPorts { clock, dice, store, peers, upstream, process } = ports;
        let (ring, routes) = (scenario.shared.ring.clone(), scenario.shared.routes.clone());
        let (carries, reached) = (design == Design::Sticky, Mutex::default());
        Arc::new(Self {
            me,
            carries,
            rivals,
            ring,
            routes,
            clock,
            dice,
            store,
            peers,
            upstream,
            process,
            reached,
        })
    }

    /// Begins to check the other regions, until the process dies.
    pub(crate) fn start(self: &Arc<Self>) {
        let others: Vec<RegionName> = match self.carries {
            true => self.ring.regions().iter().map(|region| region.name.clone()).collect(),
            false => Vec::new(),
        };
        for region in others.into_iter().filter(|region| *region != self.me) {
            let (this, process) = (self.clone(), self.process.clone());
            tokio::spawn(async move { process.while_alive(this.check(region)).await });
        }
    }

    /// Answers a client. The work goes on if the client does not wait, and ends with the process.
    pub(crate) async fn handle(self: &Arc<Self>, request: Request<Body>) -> Response<Body> {
        let this = self.clone();
        let process = self.process.clone();
        let work = tokio::spawn(async move { process.while_alive(this.answer(request)).await });
        match work.await {
            Ok(Some(response)) => response,
            Ok(None) | Err(_) => problem(StatusCode::BAD_GATEWAY, "process-gone"),
        }
    }

    async fn answer(&self, request: Request<Body>) -> Response<Body> {
        let (head, streamed) = request.into_parts();
        let Ok(Collected::Whole(body)) = body::collect(streamed, usize::MAX).await else {
            return problem(StatusCode::BAD_REQUEST, "body-incomplete");
        };
        let header = |name| head.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
        // The token of the client model names the tenant.
        let number = header("authorization").trim_start_matches("Bearer sk_");
        let (key, tenant) =
            (Key::parse(header("idempotency-key")), Tenant::parse(&format!("tenant-{number}")));
        let (Ok(key), Ok(tenant)) = (key, tenant) else {
            return problem(StatusCode::BAD_REQUEST, "no-key");
        };
        let id = KeyId::new(tenant, key);
        match self.carries {
            true => self.carry(id, head, body).await,
            false => self.serve(id, head, body, self.dice.request_id()).await,
        }
    }

    /// Forwards to the key's home region, or to the next reachable one.
    async fn carry(&self, id: KeyId, head: http::request::Parts, body: Bytes) -> Response<Body> {
        let request_id = self.dice.request_id();
        for region in self.ring.order(&id).names() {
            if *region == self.me {
                break;
            }
            if !self.reaches(region) {
                continue;
            }
            let forward = Forward {
                id: id.clone(),
                principal: None,
                method: head.method.clone(),
                target: head.uri.clone(),
                headers: head.headers.clone(),
                body: body.clone(),
                request_id,
                epoch: 1,
                deadline: Duration::MAX,
            };
            let patience = self.policy(&head).map_or(STAYS_REACHED, |policy| policy.upstream_timeout * 2);
            match timeout(patience, self.peers.forward(region, forward)).await {
                Ok(Ok(ForwardReply::Answer(response))) => return response,
                Ok(
                    Ok(ForwardReply::NotOwner { .. })
                    | Err(PeerError::NotSent(_) | PeerError::Versions { .. }),
                ) => self.forget(region),
                Ok(Err(PeerError::Unknown(_))) | Err(_) => {
                    self.forget(region);
                    return problem(StatusCode::BAD_GATEWAY, "home-unknown");
                }
            }
        }
        self.serve(id, head, body, request_id).await
    }

    /// Checks again and again if another region is reachable.
    async fn check(&self, region: RegionName) {
        loop {
            if self.peers.ping(&region, CHECK_EVERY).await.is_ok() {
                let mut reached = self.reached.lock().unwrap_or_else(PoisonError::into_inner);
                reached.insert(region.clone(), Instant::now());
            }
            sleep(CHECK_EVERY).await;
        }
    }

    fn reaches(&self, region: &RegionName) -> bool {
        let reached = self.reached.lock().unwrap_or_else(PoisonError::into_inner);
        // A check without an answer takes as long as the pause between two.
        reached.get(region).is_some_and(|at| at.elapsed() < STAYS_REACHED + CHECK_EVERY)
    }

    fn forget(&self, region: &RegionName) {
        self.reached.lock().unwrap_or_else(PoisonError::into_inner).remove(region);
    }

    fn policy(&self, head: &http::request::Parts) -> Option<&Arc<Policy>> {
        match self.routes.find(&head.method, head.uri.path(), &head.headers) {
            Matched::Route(route) => route.policy(),
            Matched::PassThrough | Matched::Refused(_) => None,
        }
    }

    /// Runs the key here, or replays it.
    async fn serve(
        &self,
        id: KeyId,
        head: http::request::Parts,
        body: Bytes,
        request_id: RequestId,
    ) -> Response<Body> {
        let Some(policy) = self.policy(&head) else { return problem(StatusCode::NOT_FOUND, "no-route") };
        let asked = Asked { id, policy, head, body, request_id };
        let mut over = None;
        loop {
            let claimed = match self.claim(&asked, over.as_ref()).await {
                Ok(claimed) => claimed,
                Err(_) => return problem(StatusCode::SERVICE_UNAVAILABLE, "store-unavailable"),
            };
            match claimed {
                Claimed::Yours(token) => return self.run(&asked, token).await,
                Claimed::Answered(status, body) => return self.answered(status, body, true),
                Claimed::Busy => return problem(StatusCode::CONFLICT, "in-progress"),
                Claimed::Doubt(token, region) => match self.recover(&asked, token, &region).await {
                    Ok(()) => over = Some((token, region)),
                    Err(response) => return response,
                },
            }
        }
    }

    async fn claim(
        &self,
        asked: &Asked<'_>,
        over: Option<&(Token, RegionName)>,
    ) -> Result<Claimed, StoreError> {
        let hold = asked.policy.hold + asked.policy.settle_time;
        self.statement(|table, now| table.claim(&self.me, &asked.id, asked.request_id, now, hold, over)).await
    }

    /// Executes a statement, under the current mode of its store. A lost reply does not undo it.
    async fn statement<T>(&self, act: impl FnOnce(&mut Table, Duration) -> T) -> Result<T, StoreError> {
        // Before it is sent, because the cluster cannot be asked while it executes a statement.
        self.rivals.arrive(&self.me);
        let execute = |_: &mut crate::table::Table| {
            self.rivals.with(&self.me, |table| act(table, self.clock.elapsed()))
        };
        self.store.call(Effect::Writes, execute).await
    }

    /// Decides if an attempt that may have happened may be made again. The error is the answer to
    /// the client.
    async fn recover(
        &self,
        asked: &Asked<'_>,
        token: Token,
        region: &RegionName,
    ) -> Result<(), Response<Body>> {
        let unknown = || problem(StatusCode::CONFLICT, "outcome-unknown");
        match (asked.policy.recovery, &asked.policy.probe) {
            (Recovery::Rerun { max_attempts }, _) if token.attempt < max_attempts => Ok(()),
            (Recovery::Rerun { .. } | Recovery::Park, _) | (Recovery::Probe, None) => Err(unknown()),
            (Recovery::Probe, Some(address)) => {
                let probe = Probe {
                    id: asked.id.clone(),
                    token,
                    region: Some(region.clone()),
                    address: address.clone(),
                    path: asked.head.uri.path().to_owned(),
                };
                let told = self.upstream.probe(probe, asked.policy.upstream_timeout, usize::MAX).await;
                match told {
                    ProbeReply::DidNotHappen => Ok(()),
                    ProbeReply::CannotSay(_) => Err(unknown()),
                    ProbeReply::Happened(response) => {
                        let status = response.status().as_u16();
                        let body = response.into_body().unwrap_or_default();
                        let state = State::Answered(status, body.clone());
                        let request_id = asked.request_id;
                        let kept = |table: &mut Table, now| {
                            let row = Row { token, request_id, since: now, state };
                            table.resolve(&self.me, &asked.id, row, now);
                        };
                        // If it cannot be kept, the next request asks again.
                        let _ = self.statement(kept).await;
                        Err(self.answered(status, body, true))
                    }
                }
            }
        }
    }

    /// Sends a claimed key, and stores the result.
    async fn run(&self, asked: &Asked<'_>, token: Token) -> Response<Body> {
        let Asked { id, policy, head, body, request_id } = asked;
        let send = Send {
            id: id.clone(),
            token,
            request_id: *request_id,
            method: head.method.clone(),
            target: head.uri.clone(),
            headers: head.headers.clone(),
            body: body.clone(),
        };
        let end = Instant::now() + policy.upstream_timeout;
        let answer = match self.upstream.send(send, policy.upstream_timeout, unchecked).await {
            Ok(response) => {
                let (head, streamed) = response.into_parts();
                let left = end.saturating_duration_since(Instant::now());
                match timeout(left, body::collect(streamed, usize::MAX)).await {
                    Ok(Ok(Collected::Whole(body))) => Ok((head.status.as_u16(), body)),
                    Ok(Ok(Collected::Over(..)) | Err(_)) | Err(_) => Err(State::Doubt),
                }
            }
            Err(SendError::NotSent(_)) => Err(State::Released),
            Err(SendError::Unknown(_) | SendError::Late(_)) => Err(State::Doubt),
        };
        let state = match &answer {
            Ok((status, body)) => match policy.outcomes.classify(*status, false) {
                Outcome::Final => State::Answered(*status, body.clone()),
                Outcome::NothingHappened => State::Released,
                Outcome::Unknown => State::Doubt,
            },
            Err(state) => state.clone(),
        };
        let kept = |table: &mut Table, now| table.end(&self.me, id, *request_id, state, now);
        // If it cannot be kept, the attempt stays open, and its hold runs out.
        let _ = self.statement(kept).await;
        match answer {
            Ok((status, body)) => self.answered(status, body, false),
            Err(State::Released) => problem(StatusCode::SERVICE_UNAVAILABLE, "upstream-unavailable"),
            Err(State::Open | State::Doubt | State::Answered(..)) => {
                problem(StatusCode::BAD_GATEWAY, "outcome-unknown")
            }
        }
    }

    fn answered(&self, status: u16, body: Bytes, replayed: bool) -> Response<Body> {
        let mut response = Response::new(body::full(body));
        *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::BAD_GATEWAY);
        let headers = response.headers_mut();
        if let Ok(me) = self.me.as_str().parse() {
            headers.insert("onceway-region", me);
        }
        if replayed {
            headers.insert("idempotent-replayed", http::HeaderValue::from_static("true"));
        }
        response
    }
}

fn problem(status: StatusCode, code: &str) -> Response<Body> {
    let mut response = Response::new(body::full(format!("{{\"code\":\"{code}\"}}")));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert("content-type", http::HeaderValue::from_static("application/problem+json"));
    headers.insert("retry-after", http::HeaderValue::from_static(RETRY_AFTER));
    response
}

impl Region for Arc<Rival> {
    fn forward(&self, _from: RegionName, forward: Forward) -> Answering<'_, ForwardReply> {
        let this = self.clone();
        Box::pin(async move {
            let Forward { id, method, target, headers, body, request_id, .. } = forward;
            let mut head = Request::new(()).into_parts().0;
            (head.method, head.uri, head.headers) = (method, target, headers);
            // Like a client's request, it is worked on even if the sender does not wait.
            let process = this.process.clone();
            let work =
                tokio::spawn(
                    async move { process.while_alive(this.serve(id, head, body, request_id)).await },
                );
            let gone = || problem(StatusCode::BAD_GATEWAY, "process-gone");
            ForwardReply::Answer(work.await.ok().flatten().unwrap_or_else(gone))
        })
    }

    fn pong(&self) -> Answering<'_, Pong> {
        let none = digest("simulation/rival/1", &[]);
        let pong = Pong {
            speaks: Versions::OURS,
            protocol: NEWEST,
            epoch: 1,
            view: none,
            shared: none,
            serving: true,
            beat: None,
            origin: None,
            applied: BTreeMap::new(),
            upstream_failing: false,
            heard: Some(BTreeMap::new()),
        };
        Box::pin(async move { pong })
    }

    fn ask(&self, _from: RegionName, _question: Question) -> Answering<'_, Told> {
        Box::pin(async { Told::Refused("this design answers forwards and pings".to_owned()) })
    }
}

/// A rival holds no lease, so nothing is checked between its claim and its send.
fn unchecked() -> bool {
    true
}
