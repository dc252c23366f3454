//! The protected service of this region.
//!
//! One call is one attempt: no redirect is followed and nothing is resent, whatever broke.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, Method, Request, Response, Uri};

use super::body::Body;
use super::store::Call;
use onceway_protocol::key::KeyId;
use onceway_protocol::record::{RequestId, Token};
use onceway_protocol::region::RegionName;

/// The reason why an upstream gave no answer, and the knowledge about the effect.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// No byte of the request reached the upstream.
    #[error("upstream: {0} (nothing was sent)")]
    NotSent(String),
    /// Some of the request may have reached the upstream.
    #[error("upstream: {0} (may have been sent)")]
    Unknown(String),
    /// Some of the request may have reached the upstream, which did not answer in time.
    #[error("upstream: {0} (may have been sent)")]
    Late(String),
}

/// Extension of an answer, 401 or 403, that may be to this gateway's own credential.
#[derive(Clone, Copy, Debug)]
pub struct CredentialRefused;

/// Extension of a status address's answer: the tokens of all effects of the key, if it names them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EffectTokens(pub Vec<Token>);

onceway_protocol::worded! {
    /// The form in which an upstream gets a key.
    KeyForm;
    /// Its name in configuration.
    name {
        /// An RFC 8941 string, in double quotes.
        Quoted = "quoted",
        /// The key alone.
        Bare = "bare",
        /// As the client of this attempt wrote it, in the header `Idempotency-Key`.
        AsSent = "as-sent",
    }
}

/// The header in which an upstream gets a key, and its form there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForwardKey {
    /// The header.
    pub header: HeaderName,
    /// The form.
    pub form: KeyForm,
}

impl Default for ForwardKey {
    fn default() -> Self {
        Self { header: HeaderName::from_static("idempotency-key"), form: KeyForm::Quoted }
    }
}

/// A request that carries a key, to be sent once.
#[derive(Clone, Debug)]
pub struct Send {
    /// The upstream that the route names; `None` is the default one.
    pub upstream: Option<Arc<str>>,
    /// The key; the upstream is told key and tenant.
    pub id: KeyId,
    /// Header and form of the key there.
    pub key: ForwardKey,
    /// The attempt's token: the upstream may refuse a smaller one than it has seen for the key.
    pub token: Token,
    /// The id of the request.
    pub request_id: RequestId,
    /// The client's method.
    pub method: Method,
    /// The client's path and query.
    pub target: Uri,
    /// The client's end-to-end headers.
    pub headers: HeaderMap,
    /// The whole body.
    pub body: Bytes,
}

/// A question about an attempt in doubt.
#[derive(Clone, Debug)]
pub struct Probe {
    /// The upstream that the route names; `None` is the default one.
    pub upstream: Option<Arc<str>>,
    /// The key.
    pub id: KeyId,
    /// The attempt's token.
    pub token: Token,
    /// The region that made the attempt: its upstream is asked, unless upstreams are shared. `None`
    /// if all members that knew that view are gone: only a shared upstream can say.
    pub region: Option<RegionName>,
    /// The route's status address.
    pub address: Uri,
    /// The path of the request in doubt.
    pub path: String,
}

/// The upstream's knowledge of an attempt.
#[derive(Debug)]
pub enum ProbeReply {
    /// The effect happened, with this answer. `None`: its body was over the limit.
    Happened(Response<Option<Bytes>>),
    /// The effect did not happen.
    DidNotHappen,
    /// The attempt is under way, or the upstream did not tell. The text is for logs.
    CannotSay(String),
}

/// Calls to the protected service.
pub trait Upstream: std::marker::Send + Sync + 'static {
    /// Sends one request once. Returns when the answer's head has arrived; its body streams. Fails
    /// after `within`. `may_send` is asked right before the first byte is written, after the
    /// connection was made, which may take seconds. If it says no, nothing is sent (`NotSent`).
    fn send(
        &self,
        send: Send,
        within: Duration,
        may_send: impl Fn() -> bool + std::marker::Send + Sync,
    ) -> impl Call<Response<Body>, SendError>;

    /// Asks if an attempt happened. Every error is "cannot say". Bodies over `limit` are left out.
    fn probe(
        &self,
        probe: Probe,
        within: Duration,
        limit: usize,
    ) -> impl Future<Output = ProbeReply> + std::marker::Send;

    /// Checks this region's upstream with GET, without a key. The error says in words what was
    /// wrong: no answer within that time, or another status than 200 to 399.
    fn check(&self, path: &Uri, within: Duration) -> impl Call<(), String>;

    /// Passes a request without key handling through to the named upstream, streaming both ways.
    /// Each wait for the upstream is at most `within`: to take a piece of the request, to begin its
    /// answer, to send a piece. After that the call fails (`Late`), or the answer's body ends with
    /// an error. Time that the client takes does not count.
    fn pass(
        &self,
        upstream: Option<&str>,
        request: Request<Body>,
        within: Duration,
    ) -> impl Call<Response<Body>, SendError>;
}
