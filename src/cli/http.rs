//! Asking an admin listener: its address and token, one GET or one POST.
//!
//! Neighbours: `status`, `coverage`, `shadow`, `doubts` and `key` ask; `fleet::client` carries. It must not follow redirects, and shows the
//! token to nobody but the address that was given.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use clap::Args;
use hyper::{StatusCode, Uri};
use serde_json::Value;

use super::{Failure, block_on};
use crate::fleet::client::Ask;
use crate::gateway::percent;

/// How long the answer may take.
const WITHIN: Duration = Duration::from_secs(10);

/// The one gateway that is asked.
#[derive(Args)]
pub struct Admin {
    /// The gateway's admin listener.
    #[arg(long, env = "ONCEWAY_ADMIN", value_name = "URL", default_value = "http://127.0.0.1:7402")]
    admin: String,
    /// A file with the admin token; not needed where the listener is on loopback.
    #[arg(long, env = "ONCEWAY_ADMIN_TOKEN_FILE", value_name = "FILE")]
    token_file: Option<PathBuf>,
}

impl Admin {
    /// The JSON of `GET path`, within ten seconds.
    pub fn get(&self, path: &str) -> Result<Value, Failure> {
        self.json(Ask::get(path))
    }

    /// The JSON of `POST path` with a JSON body, within ten seconds.
    pub fn post(&self, path: &str, body: &Value) -> Result<Value, Failure> {
        self.json(Ask::post(path, body.to_string()))
    }

    fn json(&self, ask: Ask) -> Result<Value, Failure> {
        let token = token(self.token_file.as_deref())?;
        let answer =
            block_on(async { send(&self.admin, ask, token.as_deref()).await.map_err(Failure::failed) })?;
        serde_json::from_slice(&answer)
            .map_err(|error| Failure::Failed(format!("{} answered no JSON: {error}", self.admin)))
    }
}

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
    send(base, Ask::get(path), token).await
}

/// Sends what is asked of a path to the listener at `base`.
async fn send(base: &str, ask: Ask, token: Option<&str>) -> Result<Bytes> {
    let wrong = || format!("{base:?} must be written http://host:port");
    let uri: Uri = base.parse().with_context(wrong)?;
    ensure!(uri.scheme_str() == Some("http") && matches!(uri.path(), "" | "/"), wrong());
    let mut ask = Ask { url: format!("{}{}", base.trim_end_matches('/'), ask.url), ..ask };
    if let Some(token) = token {
        ask = ask.with("Authorization", format!("Bearer {token}"));
    }
    let answer = ask.send(WITHIN).await;
    let answer = answer.with_context(|| format!("{base} does not answer: is a gateway running there?"))?;
    match answer.status {
        StatusCode::OK => Ok(answer.body),
        StatusCode::UNAUTHORIZED => bail!("{base} wants the admin token: name its file with --token-file"),
        other => match answer.json()["detail"].as_str() {
            Some(detail) => bail!("{base} answered {other}: {}", printable(detail)),
            None => bail!("{base} answered {other}"),
        },
    }
}

/// A text without control characters, which could rewrite the terminal that shows it.
pub fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// One segment of a path, with everything but letters, digits, '-', '_', '.' and '~' escaped (RFC 3986, section 2.3).
pub fn segment(text: &str) -> String {
    percent::encode(text)
}
