//! Messages between regions as HTTP: forwards, their replies, and pings; [`ask`] has questions.
//!
//! Both ends have authenticated each other before. A malformed message is refused, never guessed.
//! Each of a client's headers travels under [`CLIENT_PREFIX`], so none can be taken for one of ours
//! or for one of the connection's. A client's own `onceway-*` headers do not travel.

pub mod ask;

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, HeaderName, HeaderValue};
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{HeaderMap, Method, Request, Response, StatusCode, Uri};
use std::time::Duration;

use super::headers::{RESERVED_PREFIX, is_hop_by_hop, is_under, strip_hop_by_hop, strip_prefix};
use crate::ports::Body;
use crate::ports::body::empty;
use crate::ports::peers::{Forward, ForwardReply, Pong};
use crate::protocol::digest::Digest32;
use crate::protocol::key::{Key, KeyId, Tenant};
use crate::protocol::record::RequestId;
use crate::protocol::region::RegionName;
use crate::protocol::versions::Versions;

/// Path of forwards, by POST.
pub const FORWARD_PATH: &str = "/peer/v1/forward";
/// Path of pings, by GET.
pub const PING_PATH: &str = "/peer/v1/ping";
/// Path of hellos, by GET: a fresh connection asks whether it is accepted. Under TLS 1.3 a client
/// learns only from the first reply whether its certificate was accepted. A forward must not be the
/// message that finds out.
pub const HELLO_PATH: &str = "/peer/v1/hello";

/// Prefix of each of the client's headers.
pub const CLIENT_PREFIX: &str = "onceway-client-";
const PEER_PREFIX: &str = "onceway-peer-";

/// The versions that the sender of a hello, a ping or a question speaks, and those of its receiver.
/// A sender without the header speaks version 1. Forwards do not carry it: they travel only after
/// an answered hello.
const SPEAKS: HeaderName = HeaderName::from_static("onceway-peer-speaks");
const FROM: HeaderName = HeaderName::from_static("onceway-peer-from");
const EPOCH: HeaderName = HeaderName::from_static("onceway-peer-epoch");
const DEADLINE: HeaderName = HeaderName::from_static("onceway-peer-deadline-ms");
const TENANT: HeaderName = HeaderName::from_static("onceway-peer-tenant");
const PRINCIPAL: HeaderName = HeaderName::from_static("onceway-peer-principal");
const KEY: HeaderName = HeaderName::from_static("onceway-peer-key");
const REQUEST_ID: HeaderName = HeaderName::from_static("onceway-peer-request-id");
const METHOD: HeaderName = HeaderName::from_static("onceway-peer-method");
const TARGET: HeaderName = HeaderName::from_static("onceway-peer-target");
const HOP: HeaderName = HeaderName::from_static("onceway-peer-hop");
const REPLY: HeaderName = HeaderName::from_static("onceway-peer-reply");
/// The `Content-Length` of an answer, which may differ from the bytes that travel (HEAD, 304).
const LENGTH: HeaderName = HeaderName::from_static("onceway-peer-length");

/// Text in place of a principal if the client's credential names none.
const NOBODY: &str = "none";

/// All of ours in a forward.
const OURS: [HeaderName; 10] =
    [FROM, EPOCH, DEADLINE, TENANT, PRINCIPAL, KEY, REQUEST_ID, METHOD, TARGET, HOP];

/// Reason why a message cannot be sent or read. It holds no value of the message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// A header that must occur once is missing or occurs several times.
    #[error("peer message: {0} must be given exactly once")]
    NotOnce(HeaderName),
    /// A header's value is malformed.
    #[error("peer message: {0} is malformed")]
    Malformed(HeaderName),
    /// A header that this version does not know, and so cannot obey.
    #[error("peer message: header {0} is not known")]
    Unknown(HeaderName),
    /// The message was forwarded before.
    #[error("peer message: a forward is never forwarded again")]
    Hop,
    /// The reply to a ping is malformed.
    #[error("peer message: the ping's reply is malformed: {0}")]
    Pong(String),
    /// A question is malformed.
    #[error("peer message: the question: {0}")]
    Question(String),
    /// The answer to a question is malformed.
    #[error("peer message: what was told: {0}")]
    Answer(String),
    /// The other side refused the message. Nothing was done.
    #[error("peer message: refused with {0}")]
    Refused(StatusCode),
}

/// Makes a request without body to a peer: `path` is [`PING_PATH`] or [`HELLO_PATH`].
pub fn encode_get(
    from: &RegionName,
    speaks: Versions,
    to: &RegionName,
    path: &'static str,
) -> Request<Bytes> {
    let mut request = message(to, PathAndQuery::from_static(path));
    put(request.headers_mut(), FROM, from.as_str().as_bytes()).expect("a region is visible ASCII");
    say_versions(request.headers_mut(), speaks);
    request
}

/// Writes the versions that this process speaks into the headers.
pub fn say_versions(headers: &mut HeaderMap, speaks: Versions) {
    put(headers, SPEAKS, speaks.to_string().as_bytes()).expect("digits are visible ASCII");
}

/// Reads the versions that the other end claims to speak. Fails with `NotOnce` or `Malformed`.
pub fn decode_versions(headers: &HeaderMap) -> Result<Versions, WireError> {
    let said = headers.contains_key(SPEAKS);
    if said { parse(headers, SPEAKS, Versions::parse) } else { Ok(Versions::UNSAID) }
}

fn message(to: &RegionName, path: PathAndQuery) -> Request<Bytes> {
    let mut request = Request::new(Bytes::new());
    let uri = Uri::builder().scheme("https").authority(format!("{to}.onceway")).path_and_query(path);
    *request.uri_mut() = uri.build().expect("a region's name makes an authority");
    request
}

fn put(headers: &mut HeaderMap, name: HeaderName, value: &[u8]) -> Result<(), WireError> {
    let value = HeaderValue::from_bytes(value).map_err(|_| WireError::Malformed(name.clone()))?;
    headers.insert(name, value);
    Ok(())
}

/// Makes the request of a forward. The deadline is rounded down to milliseconds. Fails
/// (`Malformed`) if the target is not a path or a header's name is too long to travel.
pub fn encode_forward(
    from: &RegionName,
    to: &RegionName,
    forward: Forward,
) -> Result<Request<Bytes>, WireError> {
    let mut request = message(to, PathAndQuery::from_static(FORWARD_PATH));
    *request.method_mut() = Method::POST;
    let target = forward.target.path_and_query().map_or("", PathAndQuery::as_str);
    if !target.starts_with('/') {
        return Err(WireError::Malformed(TARGET));
    }
    let headers = request.headers_mut();
    put(headers, FROM, from.as_str().as_bytes())?;
    put(headers, EPOCH, forward.epoch.to_string().as_bytes())?;
    put(headers, DEADLINE, forward.deadline.as_millis().to_string().as_bytes())?;
    put(headers, TENANT, forward.id.tenant().as_bytes())?;
    put(headers, KEY, forward.id.key().as_bytes())?;
    let principal = forward.principal.map_or_else(|| NOBODY.to_owned(), |digest| digest.to_string());
    put(headers, PRINCIPAL, principal.as_bytes())?;
    put(headers, REQUEST_ID, forward.request_id.to_string().as_bytes())?;
    put(headers, METHOD, forward.method.as_str().as_bytes())?;
    put(headers, TARGET, target.as_bytes())?;
    put(headers, HOP, b"1")?;
    let mut own = forward.headers;
    strip_hop_by_hop(&mut own);
    strip_prefix(&mut own, RESERVED_PREFIX);
    for (name, value) in &own {
        let prefixed = HeaderName::try_from(format!("{CLIENT_PREFIX}{name}"))
            .map_err(|_| WireError::Malformed(name.clone()))?;
        headers.append(prefixed, value.clone());
    }
    *request.body_mut() = forward.body;
    Ok(request)
}

/// Reads the sender's region. It counts only if the connection's certificate names the same region.
/// Fails with `NotOnce` or `Malformed`.
pub fn decode_from(headers: &HeaderMap) -> Result<RegionName, WireError> {
    parse(headers, FROM, |text| RegionName::parse(text).ok())
}

/// Reads a forward from a request's head and its whole body. Fails for any message that
/// [`encode_forward`] would not have written.
pub fn decode_forward(head: &Parts, body: Bytes) -> Result<Forward, WireError> {
    let headers = &head.headers;
    if one(headers, HOP)?.as_bytes() != b"1" {
        return Err(WireError::Hop);
    }
    let tenant = parse(headers, TENANT, |text| Tenant::parse(text).ok())?;
    let key = parse(headers, KEY, |text| Key::parse(text).ok())?;
    Ok(Forward {
        id: KeyId::new(tenant, key),
        principal: parse(headers, PRINCIPAL, principal)?,
        method: parse(headers, METHOD, |text| Method::from_bytes(text.as_bytes()).ok())?,
        target: target(one(headers, TARGET)?).ok_or(WireError::Malformed(TARGET))?,
        request_id: parse(headers, REQUEST_ID, request_id)?,
        epoch: parse(headers, EPOCH, number)?,
        deadline: parse(headers, DEADLINE, number).map(Duration::from_millis)?,
        headers: client_headers(headers)?,
        body,
    })
}

fn client_headers(headers: &HeaderMap) -> Result<HeaderMap, WireError> {
    let mut client = HeaderMap::new();
    for (name, value) in headers {
        if let Some(rest) = name.as_str().strip_prefix(CLIENT_PREFIX) {
            let own = HeaderName::from_bytes(rest.as_bytes())
                .ok()
                .filter(|own| !is_hop_by_hop(own) && !is_under(own, RESERVED_PREFIX))
                .ok_or_else(|| WireError::Malformed(name.clone()))?;
            client.append(own, value.clone());
        } else if name.as_str().starts_with(RESERVED_PREFIX) && !OURS.contains(name) {
            return Err(WireError::Unknown(name.clone()));
        }
    }
    Ok(client)
}

fn one(headers: &HeaderMap, name: HeaderName) -> Result<&HeaderValue, WireError> {
    let mut values = headers.get_all(&name).iter();
    match (values.next(), values.next()) {
        (Some(value), None) => Ok(value),
        (None, _) | (Some(_), Some(_)) => Err(WireError::NotOnce(name)),
    }
}

fn parse<T>(
    headers: &HeaderMap,
    name: HeaderName,
    read: impl FnOnce(&str) -> Option<T>,
) -> Result<T, WireError> {
    let value = one(headers, name.clone())?;
    value.to_str().ok().and_then(read).ok_or(WireError::Malformed(name))
}

/// Reads a number in its one spelling: digits without sign or leading zeros.
fn number(text: &str) -> Option<u64> {
    text.parse().ok().filter(|number: &u64| number.to_string() == text)
}

/// Reads a principal's digest, or the word for none, by which a lost header is noticed.
fn principal(text: &str) -> Option<Option<Digest32>> {
    if text == NOBODY { Some(None) } else { Digest32::parse(text).map(Some) }
}

fn request_id(text: &str) -> Option<RequestId> {
    let id = u128::from_str_radix(text.strip_prefix("req_")?, 16).map(RequestId).ok()?;
    (id.to_string() == text).then_some(id)
}

/// Reads a path and query, byte for byte. A target that the parser would change or cut is refused.
fn target(value: &HeaderValue) -> Option<Uri> {
    let path = PathAndQuery::try_from(value.as_bytes()).ok()?;
    (path.as_str().starts_with('/') && path.as_str().as_bytes() == value.as_bytes()).then(|| Uri::from(path))
}

/// Writes the reply to a forward.
pub fn encode_reply(reply: ForwardReply) -> Response<Body> {
    let mut response = match reply {
        ForwardReply::Answer(mut answer) => {
            let headers = answer.headers_mut();
            strip_hop_by_hop(headers);
            strip_prefix(headers, PEER_PREFIX);
            if let Some(length) = headers.remove(CONTENT_LENGTH) {
                headers.insert(LENGTH, length);
            }
            headers.insert(REPLY, HeaderValue::from_static("answer"));
            answer
        }
        ForwardReply::NotOwner { epoch } => {
            let response = Response::builder().status(StatusCode::MISDIRECTED_REQUEST);
            let response = response.header(REPLY, "not-owner").header(EPOCH, epoch).body(empty());
            response.expect("each part is valid")
        }
    };
    *response.version_mut() = http::Version::HTTP_2;
    response
}

/// Marks a response as a refusal: the message was not accepted and nothing was done about it.
pub fn encode_refusal(mut response: Response<Body>) -> Response<Body> {
    response.headers_mut().insert(REPLY, HeaderValue::from_static("refused"));
    response
}

/// Reads the reply to a forward. After `Refused` nothing was done. Any other error leaves open what
/// was done.
pub fn decode_reply(mut response: Response<Body>) -> Result<ForwardReply, WireError> {
    match one(response.headers(), REPLY)?.as_bytes() {
        b"answer" => {
            let headers = response.headers_mut();
            headers.remove(REPLY);
            // The header's present value is the length of the bytes that travelled.
            headers.remove(CONTENT_LENGTH);
            if headers.contains_key(LENGTH) {
                let length = one(headers, LENGTH)?.clone();
                headers.remove(LENGTH);
                headers.insert(CONTENT_LENGTH, length);
            }
            if let Some(name) = headers.keys().find(|name| name.as_str().starts_with(PEER_PREFIX)) {
                return Err(WireError::Unknown(name.clone()));
            }
            *response.version_mut() = http::Version::HTTP_11;
            Ok(ForwardReply::Answer(response))
        }
        b"not-owner" => Ok(ForwardReply::NotOwner { epoch: parse(response.headers(), EPOCH, number)? }),
        b"refused" => Err(WireError::Refused(response.status())),
        _ => Err(WireError::Malformed(REPLY)),
    }
}

/// Writes a ping's reply as JSON.
pub fn encode_pong(pong: &Pong) -> Bytes {
    serde_json::to_vec(pong).expect("strings and numbers always make JSON").into()
}

/// Reads a ping's reply. Unknown members are ignored: its sender may be of a newer version. Fails
/// with `Pong` and the reason.
pub fn decode_pong(json: &[u8]) -> Result<Pong, WireError> {
    serde_json::from_slice(json).map_err(|error| WireError::Pong(error.to_string()))
}

#[cfg(test)]
mod tests;
