//! Repeated requests: connections that are kept and shared, and the choices of a seeded run.
//!
//! The suites that put a deployment under load use it. Like `fleet::client` it must not resend: an
//! attempt that is cut off is an error, and the test decides what to do.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use bytes::Bytes;
use http::{Request, Uri};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use onceway::fleet::client::{Answer, Ask};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// No listener took the connection, so surely nothing was sent.
#[derive(Debug, thiserror::Error)]
#[error("nobody takes connections there")]
pub struct NotConnected;

/// The limit for an idle connection. A listener may be about to end older ones (the admin listener
/// does so after 10 s), and would lose a request on its way.
const KEEP: Duration = Duration::from_secs(2);

/// Connections by address, each with the instant of its last answer.
type Idle = BTreeMap<String, Vec<(Instant, SendRequest<Full<Bytes>>)>>;

/// Connections to any number of addresses, shared by any number of tasks.
#[derive(Default)]
pub struct Connections {
    idle: Mutex<Idle>,
}

impl Connections {
    /// Sends on a kept connection, or on a fresh one, and waits at most `within` for the whole
    /// answer. The error is [`NotConnected`] if no listener took the connection.
    pub async fn send(&self, ask: Ask, within: Duration) -> Result<Answer> {
        timeout(within, self.converse(ask)).await.with_context(|| format!("no answer within {within:?}"))?
    }

    async fn converse(&self, ask: Ask) -> Result<Answer> {
        let uri: Uri = ask.url.parse()?;
        let authority = uri.authority().context("the URL names no host")?.to_string();
        let mut sender = match self.kept(&authority) {
            Some(sender) => sender,
            None => connect(&authority).await?,
        };
        let target = uri.path_and_query().map_or("/", |target| target.as_str());
        let mut request = Request::builder().method(ask.method).uri(target).header("host", &authority);
        for (name, value) in &ask.headers {
            request = request.header(name, value);
        }
        let answered = sender.send_request(request.body(Full::new(ask.body))?).await?;
        let (head, body) = answered.into_parts();
        let body = body.collect().await?.to_bytes();
        self.idle().entry(authority).or_default().push((Instant::now(), sender));
        Ok(Answer { status: head.status, headers: head.headers, body })
    }

    fn kept(&self, authority: &str) -> Option<SendRequest<Full<Bytes>>> {
        let mut idle = self.idle();
        let stack = idle.get_mut(authority)?;
        // A connection that is closed, or closing, is forgotten: only a free one can be told apart
        // from it.
        let usable = |kept: &(Instant, SendRequest<_>)| kept.0.elapsed() < KEEP && kept.1.is_ready();
        std::iter::from_fn(|| stack.pop()).find(usable).map(|(_, sender)| sender)
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Idle> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn connect(authority: &str) -> Result<SendRequest<Full<Bytes>>> {
    let stream = TcpStream::connect(authority).await.map_err(|_| NotConnected)?;
    stream.set_nodelay(true)?;
    let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    Ok(sender)
}

/// The choices of one run, all from its seed (splitmix64).
pub struct Dice(u64);

impl Dice {
    /// The choices of one part of a run, which do not depend on the other parts.
    pub fn of(seed: u64, part: u64) -> Dice {
        let mut dice = Dice(seed ^ part.wrapping_mul(0xd1b5_4a32_d192_ed03));
        dice.roll();
        dice
    }

    /// The next number.
    pub fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// The next number below `bound`, which is not 0.
    pub fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.roll() % bound as u64).expect("below a usize")
    }
}

/// The seed of this run: `ONCEWAY_SEED`, or a fresh one. It is printed, so that a failed run can be
/// repeated.
pub fn seed() -> u64 {
    let asked =
        std::env::var("ONCEWAY_SEED").ok().map(|text| text.parse().expect("ONCEWAY_SEED is a number"));
    let seed = asked.unwrap_or_else(|| u64::from(std::process::id()) << 20 ^ 0x5eed);
    println!("ONCEWAY_SEED={seed}");
    seed
}
