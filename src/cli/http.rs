//! One GET to an admin listener.
//!
//! Neighbours: `status` asks; `fleet::client` carries. It must not follow redirects, and shows the token to nobody but the address
//! that was given.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use hyper::{StatusCode, Uri};

use crate::fleet::client::Ask;

/// How long the answer may take.
const WITHIN: Duration = Duration::from_secs(10);

/// The body of `GET base + path`, within ten seconds.
///
/// # Errors
/// A wrong address, no connection, any status but 200, or an answer that is too late.
pub async fn get(base: &str, path: &str, token: Option<&str>) -> Result<Bytes> {
    let wrong = || format!("{base:?} must be written http://host:port");
    let uri: Uri = base.parse().with_context(wrong)?;
    ensure!(uri.scheme_str() == Some("http") && matches!(uri.path(), "" | "/"), wrong());
    let mut ask = Ask::get(format!("{}{path}", base.trim_end_matches('/')));
    if let Some(token) = token {
        ask = ask.with("Authorization", format!("Bearer {token}"));
    }
    let answer = ask.send(WITHIN).await;
    let answer = answer.with_context(|| format!("{base} does not answer: is a gateway running there?"))?;
    match answer.status {
        StatusCode::OK => Ok(answer.body),
        StatusCode::UNAUTHORIZED => bail!("{base} wants the admin token: name its file with --token-file"),
        other => bail!("{base}{path} answered {other}"),
    }
}
