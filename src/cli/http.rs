//! Asking an admin listener: its address and token, one GET or one POST.
//!
//! Neighbours: `status`, `doubts` and `key` ask; `fleet::client` carries. It must not follow redirects, and shows the token to nobody but
//! the address that was given.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use hyper::{StatusCode, Uri};
use serde_json::Value;

use super::{Failure, block_on};
use crate::fleet::client::Ask;

/// How long the answer may take.
const WITHIN: Duration = Duration::from_secs(10);

/// Which gateway is asked.
#[derive(Args)]
pub struct Admin {
    /// The gateway's admin listener.
    #[arg(long, env = "ONCEWAY_ADMIN", value_name = "URL", default_value = "http://127.0.0.1:7402")]
    pub admin: String,
    /// A file with the admin token; not needed where the listener is on loopback.
    #[arg(long, env = "ONCEWAY_ADMIN_TOKEN_FILE", value_name = "FILE")]
    pub token_file: Option<PathBuf>,
}

impl Admin {
    /// The JSON of `GET path`, within ten seconds.
    pub fn get(&self, path: &str) -> Result<Value, Failure> {
        self.ask(Ask::get(self.url(path)?))
    }

    /// The JSON of `POST path` with a JSON body, within ten seconds.
    pub fn post(&self, path: &str, body: &Value) -> Result<Value, Failure> {
        self.ask(Ask::post(self.url(path)?, body.to_string()))
    }

    fn url(&self, path: &str) -> Result<String, Failure> {
        let wrong = || Failure::Failed(format!("{:?} must be written http://host:port", self.admin));
        let uri: Uri = self.admin.parse().map_err(|_| wrong())?;
        if uri.scheme_str() != Some("http") || !matches!(uri.path(), "" | "/") {
            return Err(wrong());
        }
        Ok(format!("{}{path}", self.admin.trim_end_matches('/')))
    }

    fn ask(&self, mut ask: Ask) -> Result<Value, Failure> {
        if let Some(token) = self.token()? {
            ask = ask.with("Authorization", format!("Bearer {token}"));
        }
        let admin = &self.admin;
        // The path may hold a key: errors name the listener only.
        let answer = block_on(async {
            ask.send(WITHIN).await.map_err(|error| {
                let why = error.root_cause();
                Failure::Failed(format!("{admin} does not answer: is a gateway running there? ({why})"))
            })
        })?;
        match answer.status {
            StatusCode::OK => serde_json::from_slice(&answer.body)
                .map_err(|error| Failure::Failed(format!("{admin} answered no JSON: {error}"))),
            StatusCode::UNAUTHORIZED => Err(Failure::Failed(format!(
                "{admin} wants the admin token: name its file with --token-file"
            ))),
            other => {
                let detail = answer.json()["detail"].as_str().map_or_else(|| other.to_string(), printable);
                Err(Failure::Failed(format!("{admin}: {detail}")))
            }
        }
    }

    fn token(&self) -> Result<Option<String>, Failure> {
        let Some(path) = &self.token_file else { return Ok(None) };
        let text = std::fs::read_to_string(path).map_err(|error| {
            Failure::Bad(format!("--token-file {}: cannot be read: {error}", path.display()))
        })?;
        Ok(Some(text.trim().to_owned()))
    }
}

/// A text without control characters, which could rewrite the terminal that shows it.
pub fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// One segment of a path, with everything but letters, digits, '-', '_', '.' and '~' escaped (RFC 3986, section 2.3).
pub fn segment(text: &str) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'~') {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::percent;

    #[test]
    fn segments_come_back() {
        for text in ["a/b", "\"x\"", "100%", "?#&=", "plain-key_1.0~"] {
            assert_eq!(percent::decode(&segment(text)), text);
            assert!(!segment(text).contains(['/', '?', '#', '&', '"']));
        }
    }
}
