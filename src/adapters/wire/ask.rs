//! Questions between regions and their answers, as JSON.
//!
//! A malformed message is refused whole. Unknown members are ignored (`protocol::versions` has the
//! rules), except in views. Errors repeat nothing of the message: it may hold keys.
//! [`crate::protocol::written`] has the spelling of values.

use std::collections::BTreeMap;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{HeaderMap, Method, Request, Response};
use serde::de::{DeserializeOwned, IgnoredAny};
use serde::{Deserialize, Serialize};

use super::{REPLY, WireError, encode_get, one};
use crate::adapters::views::newer;
use crate::ports::Body;
use crate::ports::body::full;
use crate::ports::peers::{PeerReply, Question};
use crate::protocol::region::RegionName;
use crate::protocol::versions::Versions;
use crate::protocol::written::MALFORMED;

/// Path of questions, by POST.
pub const ASK_PATH: &str = "/peer/v1/ask";
/// End of a refusal that may be due to another version at the other end.
const VERSIONS: &str = "the other end may run another version of onceway: see `onceway status`";

/// Makes the request of a question.
pub fn encode_ask(
    from: &RegionName,
    speaks: Versions,
    to: &RegionName,
    question: &Question,
) -> Request<Bytes> {
    let mut request = encode_get(from, speaks, to, ASK_PATH);
    *request.method_mut() = Method::POST;
    request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    *request.body_mut() = write(question);
    request
}

/// Makes the response with an answer.
pub fn encode_reply(reply: &PeerReply) -> Response<Body> {
    let mut response = Response::new(full(write(reply)));
    response.headers_mut().insert(REPLY, HeaderValue::from_static("told"));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// Reads the head of a reply to a question: true if [`read_reply`] reads the body, false if the
/// question was refused. An error (it is neither) leaves open what was done.
pub fn is_told(headers: &HeaderMap) -> Result<bool, WireError> {
    match one(headers, REPLY)?.as_bytes() {
        b"told" => Ok(true),
        b"refused" => Ok(false),
        _ => Err(WireError::Malformed(REPLY)),
    }
}

/// Reads the text of a refusal, if it is readable.
pub fn read_refusal(json: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    struct Refusal {
        detail: String,
    }
    serde_json::from_slice(json).ok().map(|refusal: Refusal| refusal.detail)
}

/// Writes a question or an answer as JSON.
pub fn write(message: &impl Serialize) -> Bytes {
    serde_json::to_vec(message).expect("texts, numbers and lists always make JSON").into()
}

/// Reads a question. Fails (`Question`) for any text that [`write`] would not have written.
pub fn read_question(json: &[u8]) -> Result<Question, WireError> {
    read(json).map_err(WireError::Question)
}

/// Reads an answer. Fails (`Answer`) for any text that [`write`] would not have written.
pub fn read_reply(json: &[u8]) -> Result<PeerReply, WireError> {
    read(json).map_err(WireError::Answer)
}

/// Reads a message. The parser's own words are not passed on: they quote the message.
fn read<T: DeserializeOwned>(json: &[u8]) -> Result<T, String> {
    serde_json::from_slice(json).map_err(|error| {
        if let Some(why) = str::from_utf8(json).ok().and_then(newer) {
            return why.to_owned();
        }
        let words = error.to_string();
        if let Some(what) = words.strip_prefix(MALFORMED) {
            return format!("{what} is malformed");
        }
        let name = named(json).unwrap_or_default();
        let is_name = name.len() <= 32 && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
        // A message of another version is told from a broken one.
        match is_name && !name.is_empty() && words.starts_with(&format!("unknown variant `{name}`")) {
            true => format!("{name:?} is not known here: {VERSIONS}"),
            false => format!("malformed at byte {} of line {}: {VERSIONS}", error.column(), error.line()),
        }
    })
}

fn named(json: &[u8]) -> Option<String> {
    if let Ok(name) = serde_json::from_slice::<String>(json) {
        return Some(name);
    }
    let all: BTreeMap<String, IgnoredAny> = serde_json::from_slice(json).ok()?;
    let mut names = all.into_keys();
    names.next().filter(|_| names.next().is_none())
}

#[cfg(test)]
mod tests;
