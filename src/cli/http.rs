//! One GET to an admin listener, over plain HTTP/1.1.
//!
//! Neighbours: `status` asks. It must not follow redirects, and shows the token to nobody but the address that was given.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use http_body_util::{BodyExt, Empty, Limited};
use hyper::header::{AUTHORIZATION, HOST};
use hyper::{Request, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::timeout;

/// How long the answer may take.
const WITHIN: Duration = Duration::from_secs(10);
/// The largest answer that is read, in bytes.
const MOST: usize = 16 << 20;

/// The body of `GET base + path`, within ten seconds.
///
/// # Errors
/// A wrong address, no connection, any status but 200, or an answer that is too large or too late.
pub async fn get(base: &str, path: &str, token: Option<&str>) -> Result<Bytes> {
    let asked = timeout(WITHIN, ask(base, path, token)).await;
    asked.with_context(|| format!("{base} did not answer within {} s", WITHIN.as_secs()))?
}

async fn ask(base: &str, path: &str, token: Option<&str>) -> Result<Bytes> {
    let wrong = || format!("{base:?} must be written http://host:port");
    let uri: Uri = base.parse().with_context(wrong)?;
    ensure!(uri.scheme_str() == Some("http") && matches!(uri.path(), "" | "/"), wrong());
    let authority = uri.authority().with_context(wrong)?;
    let (host, port) = (authority.host(), authority.port_u16().unwrap_or(80));
    let stream = TcpStream::connect(format!("{host}:{port}")).await;
    let stream = stream.with_context(|| format!("cannot connect to {base}: is a gateway running there?"))?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    let connection = tokio::spawn(connection);
    let mut request = Request::get(path).header(HOST, authority.as_str());
    if let Some(token) = token {
        request = request.header(AUTHORIZATION, format!("Bearer {token}"));
    }
    let response = sender.send_request(request.body(Empty::<Bytes>::new())?).await?;
    match response.status() {
        StatusCode::OK => {}
        StatusCode::UNAUTHORIZED => bail!("{base} wants the admin token: name its file with --token-file"),
        other => bail!("{base}{path} answered {other}"),
    }
    let body = Limited::new(response.into_body(), MOST).collect().await;
    connection.abort();
    body.map(http_body_util::Collected::to_bytes).map_err(|error| anyhow::anyhow!("{base}{path}: {error}"))
}
