//! One GET to an admin listener.
//!
//! Neighbours: `status` and `coverage` ask; `fleet::client` carries. It must not follow redirects, and shows the token to nobody but the address
//! that was given.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use hyper::{StatusCode, Uri};

use super::Failure;
use crate::fleet::client::Ask;

/// How long the answer may take.
const WITHIN: Duration = Duration::from_secs(10);

/// The token in a file, if one is named.
///
/// # Errors
/// The file cannot be read.
pub fn token(file: Option<&Path>) -> Result<Option<String>, Failure> {
    let Some(path) = file else { return Ok(None) };
    let text = std::fs::read_to_string(path)
        .map_err(|error| Failure::Bad(format!("--token-file {}: cannot be read: {error}", path.display())))?;
    Ok(Some(text.trim().to_owned()))
}

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
