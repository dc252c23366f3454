//! Requests of a client that keeps its connections: one request, its answer, and the time.
//!
//! Unlike [`crate::fleet::client`] it keeps connections, as a client under load does. Like that
//! client it resends nothing and follows no redirect. It must not judge answers: `verdict` does.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::Result;
use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};
use xxhash_rust::xxh3::xxh3_64;

/// The parts of an answer that a drill needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answered {
    /// Its status.
    pub status: u16,
    /// A problem's code; empty for anything else.
    pub code: String,
    /// `Onceway-Region`: the region that ran or refused the request.
    pub by: String,
    /// `Idempotent-Replayed: true`.
    pub replayed: bool,
    /// `Retry-After`, verbatim.
    pub retry_after: String,
    /// A digest of the body.
    pub body: u64,
}

/// Result of a request for the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Told {
    /// An answer.
    Answer(Answered),
    /// The address refuses connections.
    Nobody,
    /// The connection broke before the whole answer.
    Broke,
    /// No answer within the client's time.
    Late,
}

impl Told {
    /// The word under which reports count it.
    pub fn word(&self) -> String {
        match self {
            Told::Answer(answer) if answer.code.is_empty() => {
                format!("{}{}", answer.status, if answer.replayed { " replayed" } else { "" })
            }
            Told::Answer(answer) => format!("{} {}", answer.status, answer.code),
            Told::Nobody => "no connection".to_owned(),
            Told::Broke => "broke off".to_owned(),
            Told::Late => "no answer".to_owned(),
        }
    }

    /// The answer, if it is the upstream's success.
    pub fn success(&self) -> Option<&Answered> {
        match self {
            Told::Answer(answer) if (200..300).contains(&answer.status) => Some(answer),
            Told::Answer(_) | Told::Nobody | Told::Broke | Told::Late => None,
        }
    }

    /// True if it is a problem with this status and code.
    pub fn is(&self, status: u16, code: &str) -> bool {
        match self {
            Told::Answer(answer) => answer.status == status && answer.code == code,
            Told::Nobody | Told::Broke | Told::Late => false,
        }
    }
}

/// One request and its result.
#[derive(Clone, Debug)]
pub struct Exchange {
    /// Number of the region that was asked.
    pub via: usize,
    /// Moment before the request was sent.
    pub sent: Instant,
    /// Moment of its end.
    pub done: Instant,
    /// Result.
    pub told: Told,
}

/// A keyed POST.
#[derive(Clone, Debug)]
pub struct Order<'a> {
    /// Host and port, such as `127.0.0.1:7401`.
    pub address: &'a str,
    /// Path, such as `/v1/charges`.
    pub path: &'a str,
    /// The tenant's token.
    pub token: &'a str,
    /// The key.
    pub key: &'a str,
    /// JSON body.
    pub body: &'static str,
}

/// Connections to any number of addresses, shared by any number of tasks.
#[derive(Default)]
pub struct Connections {
    idle: Mutex<BTreeMap<String, Vec<SendRequest<Full<Bytes>>>>>,
}

impl Connections {
    /// Sends on a kept connection, or on a fresh one, and waits at most `within` for the whole
    /// answer.
    pub async fn ask(&self, via: usize, order: &Order<'_>, within: Duration) -> Exchange {
        let sent = Instant::now();
        let told = match timeout(within, self.converse(order)).await {
            Ok(Ok(told)) => told,
            Ok(Err(_broke_off)) => Told::Broke,
            Err(_elapsed) => Told::Late,
        };
        Exchange { via, sent, done: Instant::now(), told }
    }

    async fn converse(&self, order: &Order<'_>) -> Result<Told> {
        let mut sender = match self.kept(order.address) {
            Some(sender) => sender,
            None => match connect(order.address).await? {
                Some(sender) => sender,
                None => return Ok(Told::Nobody),
            },
        };
        let request = Request::post(order.path)
            .header("host", order.address)
            .header("authorization", format!("Bearer {}", order.token))
            .header("content-type", "application/json")
            .header("idempotency-key", format!("\"{}\"", order.key))
            .body(Full::new(Bytes::from_static(order.body.as_bytes())))?;
        let (head, body) = sender.send_request(request).await?.into_parts();
        let body = body.collect().await?.to_bytes();
        self.idle().entry(order.address.to_owned()).or_default().push(sender);
        let text = |name: &str| {
            head.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned()
        };
        let code = match text("content-type") == "application/problem+json" {
            true => code_of(&body),
            false => String::new(),
        };
        Ok(Told::Answer(Answered {
            status: head.status.as_u16(),
            code,
            by: text("onceway-region"),
            replayed: text("idempotent-replayed") == "true",
            retry_after: text("retry-after"),
            body: xxh3_64(&body),
        }))
    }

    fn kept(&self, address: &str) -> Option<SendRequest<Full<Bytes>>> {
        let mut idle = self.idle();
        let stack = idle.get_mut(address)?;
        // Forgets closed and closing connections. Only a free connection is certainly neither.
        std::iter::from_fn(|| stack.pop()).find(SendRequest::is_ready)
    }

    fn idle(&self) -> MutexGuard<'_, BTreeMap<String, Vec<SendRequest<Full<Bytes>>>>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// None if the address refuses connections.
async fn connect(address: &str) -> Result<Option<SendRequest<Full<Bytes>>>> {
    let Ok(stream) = TcpStream::connect(address).await else { return Ok(None) };
    stream.set_nodelay(true)?;
    let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    Ok(Some(sender))
}

fn code_of(body: &[u8]) -> String {
    let json: serde_json::Value = serde_json::from_slice(body).unwrap_or_default();
    json["code"].as_str().unwrap_or("a problem without a code").to_owned()
}
