//! A small HTTP/1.1 client for the demo's tour, the command line, the drills and the tests: one
//! request, the whole answer, on a connection of its own or on a kept one ([`Connections`]).
//!
//! It follows no redirect and resends nothing, so that its output is what one `curl` would show.
//! The gateway must not use it: adapters have their own, stricter client.

#![allow(clippy::disallowed_methods, reason = "it runs beside gateways, and in none")]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use http::uri::Authority;
use http::{HeaderMap, Method, Request, StatusCode, Uri};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

/// Time for which an idle connection is kept. A listener may be about to end older ones (the admin
/// listener does so after 10 s), and would lose a request on its way.
const KEEP: Duration = Duration::from_secs(2);

/// A complete answer.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Its status.
    pub status: StatusCode,
    /// Its headers.
    pub headers: HeaderMap,
    /// Its body.
    pub body: Bytes,
}

impl Answer {
    /// A header's text; empty if the header is absent or not text.
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }

    /// The body as text. Bytes that are not UTF-8 are replaced.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The body as JSON; null if the body is not JSON.
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }
}

/// One request.
#[derive(Clone, Debug)]
pub struct Ask {
    /// Method.
    pub method: Method,
    /// `http://host:port/path?query`, or `https://`.
    pub url: String,
    /// Headers, in order; names may repeat.
    pub headers: Vec<(String, String)>,
    /// Body.
    pub body: Bytes,
    /// TLS settings for `https://`; without them only `http://` can be asked.
    pub tls: Option<Arc<ClientConfig>>,
}

impl Ask {
    /// A GET without headers.
    pub fn get(url: impl Into<String>) -> Self {
        let (headers, body) = (Vec::new(), Bytes::new());
        Self { method: Method::GET, url: url.into(), headers, body, tls: None }
    }

    /// A POST with a JSON body.
    pub fn post(url: impl Into<String>, json: impl Into<Bytes>) -> Self {
        let headers = vec![("Content-Type".to_owned(), "application/json".to_owned())];
        Self { method: Method::POST, url: url.into(), headers, body: json.into(), tls: None }
    }

    /// Adds a header.
    pub fn with(mut self, name: &str, value: impl Into<String>) -> Self {
        self.headers.push((name.to_owned(), value.into()));
        self
    }

    /// Sends the request, and waits at most `within` for the whole answer. Errors name the address.
    pub async fn send(&self, within: Duration) -> Result<Answer> {
        match timeout(within, self.converse()).await {
            Ok(answer) => answer.with_context(|| format!("{} {}", self.method, self.url)),
            Err(_) => bail!("{} {}: no answer within {within:?}", self.method, self.url),
        }
    }

    /// Does the same as [`Ask::send`], for a task of its own.
    pub async fn send_owned(self, within: Duration) -> Result<Answer> {
        self.send(within).await
    }

    async fn converse(&self) -> Result<Answer> {
        let (authority, request) = self.request()?;
        exchange(&mut connect(&authority, self.tls.as_ref()).await?, request).await
    }

    /// The address of the server, and the request in the form that goes over a connection to it.
    fn request(&self) -> Result<(Authority, Request<Full<Bytes>>)> {
        let uri: Uri = self.url.parse().context("not a URL")?;
        match (uri.scheme_str(), &self.tls) {
            (Some("http"), None) | (Some("https"), Some(_)) => {}
            _ => bail!("only http:// addresses can be asked, or https:// ones over TLS"),
        }
        let authority = uri.authority().context("the URL names no host")?.clone();
        let target = uri.path_and_query().map_or("/", |target| target.as_str());
        let mut request =
            Request::builder().method(self.method.clone()).uri(target).header("host", authority.as_str());
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        Ok((authority, request.body(Full::new(self.body.clone()))?))
    }
}

/// No listener took the connection, so surely nothing was sent.
#[derive(Debug, thiserror::Error)]
#[error("cannot connect")]
pub struct NotConnected(#[source] std::io::Error);

/// An open connection, which ends when this is dropped.
type Connection = SendRequest<Full<Bytes>>;

async fn connect(authority: &Authority, tls: Option<&Arc<ClientConfig>>) -> Result<Connection> {
    let host = authority.host().trim_matches(['[', ']']);
    let usual = if tls.is_some() { 443 } else { 80 };
    let address = (host, authority.port_u16().unwrap_or(usual));
    let stream = TcpStream::connect(address).await.map_err(NotConnected)?;
    stream.set_nodelay(true)?;
    let Some(tls) = tls else { return shake_hands(stream).await };
    let name = ServerName::try_from(host.to_owned())?;
    shake_hands(TlsConnector::from(tls.clone()).connect(name, stream).await?).await
}

async fn shake_hands(stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static) -> Result<Connection> {
    let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    Ok(sender)
}

async fn exchange(connection: &mut Connection, request: Request<Full<Bytes>>) -> Result<Answer> {
    let (head, body) = connection.send_request(request).await?.into_parts();
    let body = body.collect().await?.to_bytes();
    Ok(Answer { status: head.status, headers: head.headers, body })
}

/// Kept connections by address, each with the instant of its last answer.
type Idle = BTreeMap<String, Vec<(Instant, Connection)>>;

/// Connections to any number of addresses, kept as a client under load keeps them.
#[derive(Default)]
pub struct Connections(Mutex<Idle>);

impl Connections {
    /// Sends on a kept connection, or on a fresh one, and waits at most `within` for the whole
    /// answer. The error is [`NotConnected`] if no listener took the connection, and
    /// [`tokio::time::error::Elapsed`] if the time was over.
    pub async fn send(&self, ask: Ask, within: Duration) -> Result<Answer> {
        timeout(within, self.converse(ask)).await.with_context(|| format!("no answer within {within:?}"))?
    }

    async fn converse(&self, ask: Ask) -> Result<Answer> {
        let (authority, request) = ask.request()?;
        let mut connection = match self.kept(authority.as_str()) {
            Some(connection) => connection,
            None => connect(&authority, ask.tls.as_ref()).await?,
        };
        let answer = exchange(&mut connection, request).await?;
        self.idle().entry(authority.to_string()).or_default().push((Instant::now(), connection));
        Ok(answer)
    }

    fn kept(&self, authority: &str) -> Option<Connection> {
        let mut idle = self.idle();
        let stack = idle.get_mut(authority)?;
        // Forgets closed and closing connections. Only a free connection is certainly neither.
        let usable = |kept: &(Instant, Connection)| kept.0.elapsed() < KEEP && kept.1.is_ready();
        std::iter::from_fn(|| stack.pop()).find(usable).map(|(_, connection)| connection)
    }

    fn idle(&self) -> MutexGuard<'_, Idle> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
