//! A small HTTP/1.1 client for the demo's tour, the command line and the tests: one connection, one
//! request, the whole answer.
//!
//! It follows no redirect and resends nothing, so that its output is what one `curl` would show.
//! The gateway must not use it: adapters have their own, stricter client.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use http::{HeaderMap, Method, Request, StatusCode, Uri};
use http_body_util::{BodyExt, Full};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::timeout;

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
    /// `http://host:port/path?query`.
    pub url: String,
    /// Headers, in order; names may repeat.
    pub headers: Vec<(String, String)>,
    /// Body.
    pub body: Bytes,
}

impl Ask {
    /// A GET without headers.
    pub fn get(url: impl Into<String>) -> Self {
        Self { method: Method::GET, url: url.into(), headers: Vec::new(), body: Bytes::new() }
    }

    /// A POST with a JSON body.
    pub fn post(url: impl Into<String>, json: impl Into<Bytes>) -> Self {
        let headers = vec![("Content-Type".to_owned(), "application/json".to_owned())];
        Self { method: Method::POST, url: url.into(), headers, body: json.into() }
    }

    /// Adds a header.
    pub fn with(mut self, name: &str, value: impl Into<String>) -> Self {
        self.headers.push((name.to_owned(), value.into()));
        self
    }

    /// Sends the request, and waits at most `within` for the whole answer. Errors name the address
    /// and the cause.
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
        let uri: Uri = self.url.parse().context("not a URL")?;
        if uri.scheme_str() != Some("http") {
            bail!("only http:// addresses can be asked");
        }
        let authority = uri.authority().context("the URL names no host")?;
        let stream = TcpStream::connect((
            authority.host().trim_matches(['[', ']']),
            authority.port_u16().unwrap_or(80),
        ));
        let stream = stream.await.context("cannot connect")?;
        stream.set_nodelay(true)?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        let connection = tokio::spawn(connection);
        let target = uri.path_and_query().map_or("/", |target| target.as_str());
        let mut request =
            Request::builder().method(self.method.clone()).uri(target).header("host", authority.as_str());
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        let answered = sender.send_request(request.body(Full::new(self.body.clone()))?).await?;
        let (head, body) = answered.into_parts();
        let body = body.collect().await?.to_bytes();
        connection.abort();
        Ok(Answer { status: head.status, headers: head.headers, body })
    }
}
