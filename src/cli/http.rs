//! Requests to an admin listener: its address and token, one GET or one POST.
//!
//! `onceway_client` carries them, and follows no redirect. The token is for the given address only.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use clap::Args;
use hyper::{StatusCode, Uri};
use rustls::ClientConfig;
use serde_json::Value;

use super::process::{Failure, block_on};
use super::table::{list, printable};
use crate::adapters::upstream::{Tls, TlsFiles};
use crate::config::Config;
/// One segment of a path, with everything but letters, digits, '-', '_', '.' and '~' escaped (RFC
/// 3986, section 2.3).
pub use crate::gateway::operator::percent::encode as segment;
use onceway_client::{Answer, Ask};

/// Time limit of an answer.
const WITHIN: Duration = Duration::from_secs(10);
/// Time limit of an act: the gateway asks other regions, and keys are handed over.
const ACT_WITHIN: Duration = Duration::from_secs(60);

#[derive(Args)]
pub struct Admin {
    /// The gateway's admin listener.
    #[arg(long, env = "ONCEWAY_ADMIN", value_name = "URL", default_value = "http://127.0.0.1:7402")]
    admin: String,
    #[command(flatten)]
    by: By,
}

/// The operator's token, and the authority of the listener's certificate.
#[derive(Args)]
pub struct By {
    /// A file with the admin token or your own; not needed if the listener is on loopback.
    #[arg(long, env = "ONCEWAY_ADMIN_TOKEN_FILE", value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// A file with the authorities of an https:// listener, PEM. Default: the public ones.
    #[arg(long, env = "ONCEWAY_ADMIN_CA", value_name = "FILE")]
    admin_ca: Option<PathBuf>,
}

#[derive(Args)]
pub struct Approval {
    /// The approval that `onceway approve` printed, if this act needs a second person.
    #[arg(long, value_name = "APPROVAL")]
    approval: Option<String>,
}

/// The gateway of a region file, and the files it names.
#[derive(Args)]
pub struct Local {
    /// The region file; its ring and routes files are proposed to the gateway that it describes.
    #[arg(long, env = "ONCEWAY_CONFIG", value_name = "FILE")]
    pub config: PathBuf,
    /// The gateway's admin listener. Default: the one in the region file.
    #[arg(long, env = "ONCEWAY_ADMIN", value_name = "URL")]
    admin: Option<String>,
    #[command(flatten)]
    by: By,
}

/// An admin listener, and what is shown to it.
#[derive(Clone)]
pub struct Target {
    pub base: String,
    token: Option<String>,
    tls: Arc<ClientConfig>,
    approval: Option<String>,
}

impl Admin {
    /// The JSON of `GET path`, within ten seconds.
    pub fn get(&self, path: &str) -> Result<Value, Failure> {
        self.target()?.get(path)
    }

    /// Reads a list page by page: `GET path`, then the same with `after` set to each page's `next`.
    /// `each` returns true to go on.
    pub fn pages(
        &self,
        path: &str,
        mut each: impl FnMut(&Value) -> Result<bool, Failure>,
    ) -> Result<(), Failure> {
        let target = self.target()?;
        let mut next = String::new();
        loop {
            let page = match next.as_str() {
                "" => target.get(path)?,
                after => {
                    let join = if path.contains('?') { '&' } else { '?' };
                    target.get(&format!("{path}{join}after={}", segment(after)))?
                }
            };
            let go_on = each(&page)?;
            match page["next"].as_str() {
                Some(after) if go_on && after != next => after.clone_into(&mut next),
                Some(_) | None => return Ok(()),
            }
        }
    }

    /// A whole list: the region that has it, and the entries under `field`.
    pub fn list(&self, path: &str, field: &str) -> Result<(Value, Vec<Value>), Failure> {
        let (mut region, mut all) = (Value::Null, Vec::new());
        self.pages(path, |page| {
            region = page["region"].clone();
            all.extend_from_slice(list(&page[field]));
            Ok(true)
        })?;
        Ok((region, all))
    }

    pub fn target(&self) -> Result<Target, Failure> {
        self.by.target(&self.admin)
    }
}

impl Local {
    pub fn load(&self) -> Result<(Config, Target), Failure> {
        let config = Config::load_for_command(&self.config)?;
        if let Some(base) = &self.admin {
            return Ok((config, self.by.target(base)?));
        }
        let admin = &config.process.admin;
        let scheme = if admin.tls.is_some() { "https" } else { "http" };
        let mut target = self.by.target(&format!("{scheme}://{}", reachable(config.process.listen.admin)))?;
        // The file's token is for the file's address.
        let written = admin.token.as_ref().map(|token| token.reveal().to_owned());
        target.token = target.token.or(written);
        Ok((config, target))
    }
}

/// The address of a listener from its own machine.
fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        named => named,
    };
    SocketAddr::new(ip, address.port())
}

impl Target {
    /// Shows this approval with its acts.
    pub fn approved(mut self, Approval { approval }: &Approval) -> Self {
        self.approval.clone_from(approval);
        self
    }

    /// The JSON of `GET path`, within ten seconds. Any other answer is [`Failure::Failed`]: a
    /// missing list is not a list with entries, which is [`Failure::Incomplete`].
    pub fn get(&self, path: &str) -> Result<Value, Failure> {
        self.parsed(&block_on(self.fetch(path))?)
    }

    /// The JSON of `GET path` about one thing, within ten seconds; fails as an act on it does.
    pub fn look(&self, path: &str) -> Result<Value, Failure> {
        self.judged(Ask::get(path), WITHIN)
    }

    /// Posts an act, within a minute. [`Failure::Incomplete`] means that it may succeed later,
    /// [`Failure::Bad`] that it is no act.
    pub fn act(&self, path: &str, body: &Value) -> Result<Value, Failure> {
        self.judged(Ask::post(path, body.to_string()), ACT_WITHIN)
    }

    /// The JSON of an answer, or its failure: the table of exit codes gives it for the status and
    /// code.
    fn judged(&self, ask: Ask, within: Duration) -> Result<Value, Failure> {
        let answer = block_on(self.ask(ask, within))?;
        if answer.status == StatusCode::OK {
            return self.parsed(&answer.body);
        }
        let (why, said) = (self.refusal(&answer), answer.json());
        let detail = said["detail"].as_str().map_or_else(|| why.clone(), printable);
        Err(match answer.status {
            StatusCode::SERVICE_UNAVAILABLE => Failure::Incomplete(detail),
            StatusCode::CONFLICT if said["code"] == "not-yet" => Failure::Incomplete(detail),
            StatusCode::FORBIDDEN if said["code"] == "needs-approval" => {
                let request = said["request"].as_str().map(printable).unwrap_or_default();
                Failure::Incomplete(format!("{detail}\n  onceway approve {request}"))
            }
            StatusCode::BAD_REQUEST | StatusCode::NOT_FOUND => Failure::Bad(detail),
            StatusCode::CONFLICT => Failure::Failed(detail),
            _ => Failure::Failed(why),
        })
    }

    fn parsed(&self, answer: &[u8]) -> Result<Value, Failure> {
        serde_json::from_slice(answer)
            .map_err(|error| Failure::Failed(format!("{} answered no JSON: {error}", self.base)))
    }

    /// The body of `GET path`, within ten seconds. The error: a wrong address, no connection, any
    /// status but 200, or an answer that is too late.
    pub async fn fetch(&self, path: &str) -> Result<Bytes> {
        let answer = self.ask(Ask::get(path), WITHIN).await?;
        match answer.status {
            StatusCode::OK => Ok(answer.body),
            _ => bail!(self.refusal(&answer)),
        }
    }

    async fn ask(&self, ask: Ask, within: Duration) -> Result<Answer> {
        let base = &self.base;
        let wrong = || format!("{base:?} must be written http://host:port, or https://host:port");
        let uri: Uri = base.parse().with_context(wrong)?;
        ensure!(
            matches!(uri.scheme_str(), Some("http" | "https")) && matches!(uri.path(), "" | "/"),
            wrong()
        );
        let tls = (uri.scheme_str() == Some("https")).then(|| self.tls.clone());
        let mut ask = Ask { url: format!("{}{}", base.trim_end_matches('/'), ask.url), tls, ..ask };
        if let Some(token) = &self.token {
            ask = ask.with("Authorization", format!("Bearer {token}"));
        }
        if let Some(approval) = &self.approval {
            ask = ask.with("Onceway-Approval", approval.trim());
        }
        let answer = ask.send(within).await;
        answer.with_context(|| format!("{base} does not answer: is a gateway running there?"))
    }

    fn refusal(&self, answer: &Answer) -> String {
        let base = &self.base;
        match (answer.status, answer.json()["detail"].as_str()) {
            (StatusCode::UNAUTHORIZED, _) => {
                format!("{base} wants the admin token, or an operator's: name its file with --token-file")
            }
            (other, Some(detail)) => format!("{base} answered {other}: {}", printable(detail)),
            (other, None) => format!("{base} answered {other}"),
        }
    }
}

impl By {
    /// The listener at `base`. Reads the files.
    pub fn target(&self, base: &str) -> Result<Target, Failure> {
        let files = TlsFiles { ca: self.admin_ca.clone(), ..TlsFiles::default() };
        let tls = Tls::load(&files).map_err(|error| Failure::Bad(format!("--admin-ca: {error}")))?.now();
        let read = |path: &PathBuf| match std::fs::read_to_string(path) {
            Ok(text) => Ok(text.trim().to_owned()),
            Err(error) => {
                Err(Failure::Bad(format!("--token-file {}: cannot be read: {error}", path.display())))
            }
        };
        let token = self.token_file.as_ref().map(read).transpose()?;
        Ok(Target { base: base.to_owned(), token, tls, approval: None })
    }
}
