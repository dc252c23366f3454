//! The sample payments service: one server per region for the shared [`crate::ledger`]. Each POST
//! to one of `KINDS` has one effect: nothing is deduplicated. `POST /v1/blobs` digests a stream.
//! [`crate::behave`] says how to treat a call. The service plays another company's machine, and
//! knows of no gateways. A caller that hangs up cancels no effect that it ordered.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Limited};
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use super::behave::{Behave, Then};
use super::ledger::{Answer, Ledger, Order, Outcome};
use super::{accept_until, hex, lock, wait};

/// Path of a gateway's health check; 503 while the service is set to be sick.
const HEALTH_PATH: &str = "/healthz";
/// Path of probes. Request headers: `Idempotency-Key`, `Onceway-Tenant` and, to distinguish
/// operations, [`EFFECT_PATH`]. Every answer carries [`EFFECT`].
pub const PROBE_PATH: &str = "/onceway/effects";
/// Response header: `happened` (200, with [`EFFECT_STATUS`] and the first answer's body), `none`
/// (404) or `pending` (202).
pub const EFFECT: &str = "onceway-effect";
/// Response header of a probe that says `happened`: the status of the first answer.
pub const EFFECT_STATUS: &str = "onceway-effect-status";
/// Request header of a probe: the path of the original request; any path if absent.
pub const EFFECT_PATH: &str = "onceway-effect-path";

const TENANT: &str = "onceway-tenant";
const KEY: &str = "idempotency-key";
const FORM: &[u8] = b"application/x-www-form-urlencoded";
const BEHAVE: &str = "demo-behave";
const MOST_BODY_BYTES: usize = 16 * 1024 * 1024;

const KINDS: [(&str, &str, &str); 4] = [
    ("/v1/charges", "ch", "charge"),
    ("/v1/payouts", "po", "payout"),
    ("/v1/emails", "em", "email"),
    ("/v1/notes", "nt", "note"),
];

/// One address of a region's service, perhaps behind TLS. Dropping it closes its connections;
/// ordered effects still happen.
pub struct Upstream {
    address: SocketAddr,
    acceptor: Option<TlsAcceptor>,
    door: Arc<Door>,
    accepting: Mutex<JoinSet<()>>,
}

impl Upstream {
    /// Listens on `address`. The ledger books the effects under `region`.
    pub async fn start(region: &str, address: SocketAddr, ledger: Arc<Ledger>) -> std::io::Result<Upstream> {
        let (sick, stopping) = (AtomicBool::default(), watch::Sender::new(false));
        let door = Arc::new(Door { region: region.to_owned(), ledger, sick, stopping });
        let mut upstream = Upstream { address, acceptor: None, door, accepting: Mutex::default() };
        upstream.address = upstream.open().await?;
        Ok(upstream)
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// One more address of the service, behind TLS. It is not open yet.
    pub fn endpoint(&self, address: SocketAddr, acceptor: TlsAcceptor) -> Upstream {
        let (acceptor, door) = (Some(acceptor), self.door.clone());
        Upstream { address, acceptor, door, accepting: Mutex::default() }
    }

    /// Makes the service fail its health checks (`sick`) or pass them. Other calls work as before.
    pub fn set_sick(&self, sick: bool) {
        self.door.sick.store(sick, Ordering::SeqCst);
    }

    /// Stops listening, lets running calls end within `bound`, then closes the connections.
    pub async fn stop(self, bound: Duration) {
        self.door.stopping.send_replace(true);
        let mut accepting = std::mem::take(&mut *lock(&self.accepting));
        let _ = timeout(bound, accepting.join_next()).await;
    }

    /// Listens, unless it does. Returns the address: with a port, if it had none.
    pub async fn open(&self) -> std::io::Result<SocketAddr> {
        if !lock(&self.accepting).is_empty() {
            return Ok(self.address);
        }
        let listener = TcpListener::bind(self.address).await?;
        let address = listener.local_addr()?;
        lock(&self.accepting).spawn(accept(listener, self.acceptor.clone(), self.door.clone()));
        Ok(address)
    }

    /// Closes listener and connections at once, as a dying process would; effects still happen.
    pub async fn kill(&self) {
        let mut running = std::mem::take(&mut *lock(&self.accepting));
        running.shutdown().await;
    }
}

async fn accept(listener: TcpListener, acceptor: Option<TlsAcceptor>, door: Arc<Door>) {
    let mut stopped = door.stopping.subscribe();
    let stop = async move { drop(stopped.wait_for(|stopping| *stopping).await) };
    accept_until(listener, stop, |stream| greet(stream, acceptor.clone(), door.clone())).await;
}

async fn greet(stream: TcpStream, acceptor: Option<TlsAcceptor>, door: Arc<Door>) {
    let _ = stream.set_nodelay(true);
    let Some(acceptor) = acceptor else { return converse(stream, door).await };
    if let Ok(stream) = acceptor.accept(stream).await {
        converse(stream, door).await;
    }
}

async fn converse(stream: impl AsyncRead + AsyncWrite + Unpin, door: Arc<Door>) {
    let mut stopped = door.stopping.subscribe();
    let service = service_fn(move |request| door.clone().serve(request));
    // No time limit on idle connections: a caller's pool must not meet a connection that closes
    // just as the caller sends.
    let connection = hyper::server::conn::http1::Builder::new()
        .header_read_timeout(None)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    // An error is the caller's hang-up or a dropped answer: both are intended.
    tokio::select! {
        biased;
        _ = stopped.wait_for(|stopping| *stopping) => {}
        _ = connection.as_mut() => return,
    }
    connection.as_mut().graceful_shutdown();
    let _ = connection.await;
}

#[derive(Debug, thiserror::Error)]
#[error("the sample upstream closes the connection without an answer")]
struct NoAnswer;

type Reply = Result<Response<Padded>, NoAnswer>;

#[derive(Debug)]
struct Door {
    region: String,
    ledger: Arc<Ledger>,
    sick: AtomicBool,
    stopping: watch::Sender<bool>,
}

impl Door {
    async fn serve(self: Arc<Self>, request: Request<Incoming>) -> Reply {
        let path = request.uri().path().to_owned();
        let reading = request.method() == Method::GET || request.method() == Method::HEAD;
        let writing = request.method() == Method::POST;
        if reading && path == PROBE_PATH {
            return Ok(self.probe(request.headers()));
        }
        if reading && path == HEALTH_PATH && self.sick.load(Ordering::SeqCst) {
            return Ok(problem(StatusCode::SERVICE_UNAVAILABLE, "sick, as it was told to be"));
        }
        let behave = request.headers().get_all(BEHAVE).into_iter();
        let behave = match Behave::parse(behave.map(|value| value.to_str().unwrap_or("(not text)"))) {
            Ok(behave) => behave,
            Err(what) => return Ok(problem(StatusCode::BAD_REQUEST, &format!("Demo-Behave: {what}"))),
        };
        if reading {
            return self.describe(&request, behave).await;
        }
        if writing && path == "/v1/blobs" {
            return digest(request.into_body()).await;
        }
        match KINDS.iter().find(|(known, _, _)| writing && *known == path) {
            Some((_, prefix, object)) => self.effect(request, behave, prefix, object).await,
            None => {
                Ok(problem(StatusCode::NOT_FOUND, &format!("there is no {} {path} here", request.method())))
            }
        }
    }

    /// Answers a read. Reads have no effect, and `Demo-Behave` can make them slow, large, failing
    /// or mute, like writes.
    async fn describe(&self, request: &Request<Incoming>, behave: Behave) -> Reply {
        let uri = request.uri();
        let body = json!({"method": request.method().as_str(), "path": uri.path(), "query": uri.query(), "region": self.region});
        wait::pause(behave.slow.unwrap_or_default()).await;
        answer(behave.then, StatusCode::OK, Answer { padded_to: padding(behave.then), ..plain(&body) }).await
    }

    async fn effect(
        &self,
        request: Request<Incoming>,
        behave: Behave,
        prefix: &'static str,
        object: &'static str,
    ) -> Reply {
        let kind = request.headers().get(CONTENT_TYPE);
        let is_form = kind.is_some_and(|kind| kind.as_bytes().starts_with(FORM));
        let order = Order {
            key: key(request.headers()),
            tenant: text(request.headers(), TENANT),
            path: request.uri().path().to_owned(),
        };
        let body = match Limited::new(request.into_body(), MOST_BODY_BYTES).collect().await {
            Ok(body) => body.to_bytes(),
            Err(error) if error.is::<http_body_util::LengthLimitError>() => {
                let what = format!("a body has at most {MOST_BODY_BYTES} bytes");
                return Ok(problem(StatusCode::PAYLOAD_TOO_LARGE, &what));
            }
            Err(_caller_left) => return Err(NoAnswer),
        };
        let wanted = match if is_form { Wanted::parse_form(&body) } else { Wanted::parse(&body) } {
            Ok(wanted) => wanted,
            Err(what) => return Ok(problem(StatusCode::BAD_REQUEST, what)),
        };
        if !behave.then.has_effect() {
            wait::pause(behave.slow.unwrap_or_default()).await;
            return answer(behave.then, StatusCode::CREATED, Answer::default()).await;
        }
        let (region, amount) = (self.region.clone(), wanted.amount);
        let write_answer = move |effect: u64| {
            let body = wanted.answer(effect, prefix, object, &region);
            Answer { padded_to: padding(behave.then), ..plain(&body) }
        };
        match self.perform(order, amount, behave.slow, write_answer).await {
            Ok(performed) => answer(behave.then, StatusCode::CREATED, performed).await,
            Err(error) => {
                let what = format!("the ledger cannot be written, nothing happened: {error}");
                Ok(problem(StatusCode::INTERNAL_SERVER_ERROR, &what))
            }
        }
    }

    /// Performs the effect in a task of its own, which outlives a caller that hangs up.
    async fn perform(
        &self,
        order: Order,
        amount: Option<u64>,
        slow: Option<Duration>,
        write_answer: impl FnOnce(u64) -> Answer + Send + 'static,
    ) -> std::io::Result<Answer> {
        let (ledger, region) = (self.ledger.clone(), self.region.clone());
        let in_progress = ledger.begin(&order);
        let task = tokio::spawn(async move {
            wait::pause(slow.unwrap_or_default()).await;
            tokio::task::spawn_blocking(move || {
                let performed = ledger.perform(&order, &region, amount, write_answer);
                drop(in_progress);
                performed
            })
            .await
        });
        task.await.map_err(std::io::Error::other)?.map_err(std::io::Error::other)?
    }

    fn probe(&self, headers: &HeaderMap) -> Response<Padded> {
        let order =
            Order { key: key(headers), tenant: text(headers, TENANT), path: text(headers, EFFECT_PATH) };
        if order.key.is_empty() {
            return problem(StatusCode::BAD_REQUEST, "a probe needs the header Idempotency-Key");
        }
        let (mut response, said) = match self.ledger.probe(&order) {
            Outcome::Happened(answer) => {
                let mut response = respond(StatusCode::OK, answer);
                response.headers_mut().insert(EFFECT_STATUS, HeaderValue::from_static("201"));
                (response, "happened")
            }
            Outcome::Pending => {
                (respond(StatusCode::ACCEPTED, plain(&json!({"effect": "pending"}))), "pending")
            }
            Outcome::Nothing => (problem(StatusCode::NOT_FOUND, "no effect under this key"), "none"),
        };
        response.headers_mut().insert(EFFECT, HeaderValue::from_static(said));
        response
    }
}

struct Wanted {
    amount: Option<u64>,
    currency: Option<String>,
}

impl Wanted {
    fn parse(body: &[u8]) -> Result<Wanted, &'static str> {
        let value: Value = serde_json::from_slice(body).map_err(|_| "the body is not JSON")?;
        let members = value.as_object().ok_or("the body is JSON, but no object")?;
        let whole = |amount: &Value| amount.as_u64().ok_or("`amount` must be a whole number, not below 0");
        let amount = members.get("amount").map(whole).transpose()?;
        let text = |currency: &Value| currency.as_str().map(str::to_owned).ok_or("`currency` must be text");
        Ok(Wanted { amount, currency: members.get("currency").map(text).transpose()? })
    }

    /// Reads a form, as Stripe's clients send it.
    fn parse_form(body: &[u8]) -> Result<Wanted, &'static str> {
        let field = |name| form_urlencoded::parse(body).find(|(key, _)| key == name).map(|(_, value)| value);
        let whole = |text: std::borrow::Cow<'_, str>| {
            text.parse().map_err(|_| "`amount` must be a whole number, not below 0")
        };
        let amount = field("amount").map(whole).transpose()?;
        Ok(Wanted { amount, currency: field("currency").map(|currency| currency.into_owned()) })
    }

    fn answer(&self, effect: u64, prefix: &str, object: &str, region: &str) -> Value {
        json!({
            "id": format!("{prefix}_{effect:08}"), "object": object, "amount": self.amount, "currency": self.currency,
            "status": "succeeded", "region": region,
        })
    }
}

fn padding(then: Then) -> usize {
    match then {
        Then::Big(bytes) => bytes,
        Then::Answer | Then::DropAnswer | Then::Status(_) | Then::Hang => 0,
    }
}

async fn answer(then: Then, usual: StatusCode, answer: Answer) -> Reply {
    match then {
        Then::Answer | Then::Big(_) => Ok(respond(usual, answer)),
        Then::DropAnswer => Err(NoAnswer),
        Then::Status(status) => Ok(problem(status, "asked for by Demo-Behave; nothing happened")),
        Then::Hang => std::future::pending().await,
    }
}

async fn digest(mut body: Incoming) -> Reply {
    let (mut digest, mut bytes) = (Sha256::new(), 0_u64);
    while let Some(frame) = body.frame().await {
        if let Ok(data) = frame.map_err(|_caller_left| NoAnswer)?.into_data() {
            digest.update(&data);
            bytes += data.len() as u64;
        }
    }
    let sha256 = hex(&digest.finalize());
    Ok(respond(StatusCode::OK, plain(&json!({"bytes": bytes, "sha256": sha256}))))
}

/// The key as its owner wrote it. The gateway sends an RFC 8941 string (section 3.3.3), `"abc"`;
/// other callers may send `abc`.
fn key(headers: &HeaderMap) -> String {
    let raw = text(headers, KEY);
    let Some(quoted) = raw.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) else { return raw };
    let mut plain = String::with_capacity(quoted.len());
    let mut characters = quoted.chars();
    while let Some(character) = characters.next() {
        plain.extend(if character == '\\' { characters.next() } else { Some(character) });
    }
    plain
}

fn text(headers: &HeaderMap, name: &str) -> String {
    let value = headers.get(name).map(|value| String::from_utf8_lossy(value.as_bytes()).trim().to_owned());
    value.unwrap_or_default()
}

fn plain(body: &Value) -> Answer {
    Answer { body: Bytes::from(body.to_string()), ..Answer::default() }
}

fn respond(status: StatusCode, answer: Answer) -> Response<Padded> {
    let blanks = answer.padded_to.saturating_sub(answer.body.len());
    let mut response = Response::new(Padded { head: answer.body, blanks });
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

fn problem(status: StatusCode, detail: &str) -> Response<Padded> {
    let bodiless =
        [StatusCode::NO_CONTENT, StatusCode::RESET_CONTENT, StatusCode::NOT_MODIFIED].contains(&status);
    let title = status.canonical_reason().unwrap_or("Unnamed status");
    let answer = plain(&json!({"title": title, "status": status.as_u16(), "detail": detail}));
    let mut response = respond(status, if bodiless { Answer::default() } else { answer });
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
    response
}

/// A body with blanks after it, made while they are sent.
#[derive(Debug)]
struct Padded {
    head: Bytes,
    blanks: usize,
}

impl Body for Padded {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        static BLANKS: [u8; 64 * 1024] = [b' '; 64 * 1024];
        let data = if self.head.is_empty() {
            let now = self.blanks.min(BLANKS.len());
            self.blanks -= now;
            Bytes::from_static(&BLANKS[..now])
        } else {
            std::mem::take(&mut self.head)
        };
        Poll::Ready((!data.is_empty()).then(|| Ok(Frame::data(data))))
    }

    fn is_end_stream(&self) -> bool {
        self.head.is_empty() && self.blanks == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact((self.head.len() + self.blanks) as u64)
    }
}

#[cfg(test)]
#[path = "upstream_tests.rs"]
mod tests;
