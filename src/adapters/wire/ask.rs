//! Questions between regions and their answers, as JSON: encoding and decoding are side by side.
//!
//! A malformed message is refused whole, never guessed. Unknown members are ignored
//! (`protocol::versions` has the rules), except in views, which are read to the letter. Errors say
//! what is wrong and repeat nothing of the message: it may hold keys. [`parts`] and [`register`]
//! have the parts of messages. This file must not know what to do with a question.

mod parts;
mod register;

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::uri::PathAndQuery;
use http::{HeaderMap, Method, Request, Response};
use serde::de::{DeserializeOwned, IgnoredAny};
use serde::{Deserialize, Serialize};

use self::parts::{
    AnswerPart, CopiedRowPart, KeyPart, LodgingPart, ReleasePart, TokenPart, Wrong, acceptor_id, hex128,
    nonce, origin, region,
};
use self::register::{MessagePart, ReplyPart};
use super::{FROM, REPLY, WireError, message, one, put, say_versions};
use crate::adapters::views::{Spelled, ViewDoc, newer};
use crate::ports::Body;
use crate::ports::authority::{CopiedRow, Lodged};
use crate::ports::body::full;
use crate::ports::peers::{OperatorAct, Question, Told};
use crate::protocol::change::Report;
use crate::protocol::opening;
use crate::protocol::region::RegionName;
use crate::protocol::versions::Versions;

/// Path of questions, by POST.
pub const ASK_PATH: &str = "/peer/v1/ask";
/// Value of [`REPLY`] for a body that is the answer to the question.
const TOLD: &[u8] = b"told";
/// End of a refusal that may be due to another version at the other end.
const VERSIONS: &str = "the other end may run another version of onceway: see `onceway status`";

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum QuestionMessage {
    Acceptor { to: Option<String>, message: MessagePart },
    Views { after: u64 },
    Adopt { view: ViewDoc },
    Release { target: ViewDoc },
    Frontier { origin: String, at: u64 },
    Rows { origin: String, after: Option<KeyPart>, most: u32 },
    Latest { origin: String, from: u64, most: u32 },
    Lodge(LodgingPart),
    LodgeAnswer { id: KeyPart, token: TokenPart, nonce: String, answer: AnswerPart },
    Void { id: KeyPart, token: TokenPart, nonce: String },
    AcceptRisk { region: String, at: u64, actor: String, reason: String },
    Key { id: KeyPart },
}

/// The names above. They tell a question of another version from a broken one.
const QUESTIONS: [&str; 12] = [
    "acceptor",
    "views",
    "adopt",
    "release",
    "frontier",
    "rows",
    "latest",
    "lodge",
    "lodge_answer",
    "void",
    "accept_risk",
    "key",
];

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ToldMessage {
    Acceptor(Box<ReplyPart>),
    Views(Vec<ViewDoc>),
    Adopted { epoch: u64 },
    Released { generation: u32, seal: u64, release: ReleasePart, seen: BTreeMap<String, u64> },
    Frontier { applied: u64, seal: u64 },
    Rows(Vec<CopiedRowPart>),
    Latest { rows: Vec<CopiedRowPart>, next: Option<u64> },
    Lodged(LodgedPart),
    Key { status: String },
    Done,
    Refused { why: String },
}

/// The names above.
const TELLINGS: [&str; 11] = [
    "acceptor", "views", "adopted", "released", "frontier", "rows", "latest", "lodged", "key", "done",
    "refused",
];

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum LodgedPart {
    Done,
    GateMoved,
    Superseded,
}

/// Makes the request of a question.
pub fn encode_ask(
    from: &RegionName,
    speaks: Versions,
    to: &RegionName,
    question: &Question,
) -> Request<Bytes> {
    let mut request = message(to, PathAndQuery::from_static(ASK_PATH));
    *request.method_mut() = Method::POST;
    put(request.headers_mut(), FROM, from.as_str().as_bytes()).expect("a region is visible ASCII");
    say_versions(request.headers_mut(), speaks);
    request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    *request.body_mut() = write_question(question);
    request
}

/// Makes the response with an answer.
pub fn encode_told(told: &Told) -> Response<Body> {
    let mut response = Response::new(full(write_told(told)));
    response.headers_mut().insert(REPLY, HeaderValue::from_static("told"));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// Kind of a reply to a question, from its head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replied {
    /// The answer: read the body with [`read_told`].
    Told,
    /// A refusal of the question: read the reason with [`read_refusal`].
    Refused,
}

/// Reads the head of a reply to a question.
///
/// # Errors
/// The reply is neither kind, which leaves open what was done.
pub fn decode_replied(headers: &HeaderMap) -> Result<Replied, WireError> {
    match one(headers, REPLY)?.as_bytes() {
        TOLD => Ok(Replied::Told),
        b"refused" => Ok(Replied::Refused),
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

/// Writes a question as JSON.
pub fn write_question(question: &Question) -> Bytes {
    let written = match question {
        Question::Acceptor { to, message } => {
            QuestionMessage::Acceptor { to: to.map(|to| hex128(to.0)), message: MessagePart::of(message) }
        }
        Question::Views { after } => QuestionMessage::Views { after: *after },
        Question::Adopt { view } => QuestionMessage::Adopt { view: view.doc() },
        Question::Release { target } => QuestionMessage::Release { target: target.doc() },
        Question::Frontier { origin, at } => {
            QuestionMessage::Frontier { origin: origin.to_string(), at: *at }
        }
        Question::Rows { origin, after, most } => QuestionMessage::Rows {
            origin: origin.to_string(),
            after: after.as_ref().map(KeyPart::of),
            most: *most,
        },
        Question::Latest { origin, from, most } => {
            QuestionMessage::Latest { origin: origin.to_string(), from: *from, most: *most }
        }
        Question::Lodge(lodging) => QuestionMessage::Lodge(LodgingPart::of(lodging)),
        Question::LodgeAnswer { id, token, nonce, answer } => QuestionMessage::LodgeAnswer {
            id: KeyPart::of(id),
            token: TokenPart::of(*token),
            nonce: hex128(nonce.0),
            answer: AnswerPart::of(answer),
        },
        Question::Void { id, token, nonce } => QuestionMessage::Void {
            id: KeyPart::of(id),
            token: TokenPart::of(*token),
            nonce: hex128(nonce.0),
        },
        Question::Operator(OperatorAct::AcceptRisk { region, at, actor, reason }) => {
            QuestionMessage::AcceptRisk {
                region: region.to_string(),
                at: *at,
                actor: actor.clone(),
                reason: reason.clone(),
            }
        }
        Question::Key { id } => QuestionMessage::Key { id: KeyPart::of(id) },
    };
    json(&written)
}

/// Reads a question.
///
/// # Errors
/// `Question`: any text that [`write_question`] would not have written.
pub fn read_question(json: &[u8]) -> Result<Question, WireError> {
    let written = read(json, &QUESTIONS).map_err(WireError::Question)?;
    question(written).map_err(|Wrong(what)| WireError::Question(format!("{what} is malformed")))
}

fn question(written: QuestionMessage) -> Result<Question, Wrong> {
    Ok(match written {
        QuestionMessage::Acceptor { to, message } => {
            Question::Acceptor { to: to.as_deref().map(acceptor_id).transpose()?, message: message.read()? }
        }
        QuestionMessage::Views { after } => Question::Views { after },
        QuestionMessage::Adopt { view } => Question::Adopt { view: Spelled::from_doc(view)? },
        QuestionMessage::Release { target } => Question::Release { target: Spelled::from_doc(target)? },
        QuestionMessage::Frontier { origin: name, at } => Question::Frontier { origin: origin(&name)?, at },
        QuestionMessage::Rows { origin: name, after, most } => {
            Question::Rows { origin: origin(&name)?, after: after.map(KeyPart::read).transpose()?, most }
        }
        QuestionMessage::Latest { origin: name, from, most } => {
            Question::Latest { origin: origin(&name)?, from, most }
        }
        QuestionMessage::Lodge(lodging) => Question::Lodge(Box::new(lodging.read()?)),
        QuestionMessage::LodgeAnswer { id, token, nonce: digits, answer } => Question::LodgeAnswer {
            id: id.read()?,
            token: token.read(),
            nonce: nonce(&digits)?,
            answer: Arc::new(answer.read()?),
        },
        QuestionMessage::Void { id, token, nonce: digits } => {
            Question::Void { id: id.read()?, token: token.read(), nonce: nonce(&digits)? }
        }
        QuestionMessage::AcceptRisk { region: name, at, actor, reason } => {
            Question::Operator(OperatorAct::AcceptRisk { region: region(&name)?, at, actor, reason })
        }
        QuestionMessage::Key { id } => Question::Key { id: id.read()? },
    })
}

/// Writes an answer as JSON.
pub fn write_told(told: &Told) -> Bytes {
    let written = match told {
        Told::Acceptor(reply) => ToldMessage::Acceptor(Box::new(ReplyPart::of(reply))),
        Told::Views(all) => ToldMessage::Views(all.iter().map(Spelled::doc).collect()),
        Told::Adopted(epoch) => ToldMessage::Adopted { epoch: *epoch },
        Told::Released(Report { generation, seal, release, seen }) => ToldMessage::Released {
            generation: *generation,
            seal: *seal,
            release: ReleasePart::of(release),
            seen: seen.iter().map(|(origin, seq)| (origin.to_string(), *seq)).collect(),
        },
        Told::Frontier(opening::Told { applied, seal }) => {
            ToldMessage::Frontier { applied: *applied, seal: *seal }
        }
        Told::Rows(rows) => ToldMessage::Rows(rows.iter().map(CopiedRowPart::of).collect()),
        Told::Latest(rows, next) => {
            ToldMessage::Latest { rows: rows.iter().map(CopiedRowPart::of).collect(), next: *next }
        }
        Told::Lodged(Lodged::Done) => ToldMessage::Lodged(LodgedPart::Done),
        Told::Lodged(Lodged::GateMoved) => ToldMessage::Lodged(LodgedPart::GateMoved),
        Told::Lodged(Lodged::Superseded) => ToldMessage::Lodged(LodgedPart::Superseded),
        Told::Key(status) => ToldMessage::Key { status: status.clone() },
        Told::Done => ToldMessage::Done,
        Told::Refused(why) => ToldMessage::Refused { why: why.clone() },
    };
    json(&written)
}

/// Reads an answer.
///
/// # Errors
/// `Told`: any text that [`write_told`] would not have written.
pub fn read_told(json: &[u8]) -> Result<Told, WireError> {
    let written = read(json, &TELLINGS).map_err(WireError::Told)?;
    told(written).map_err(|Wrong(what)| WireError::Told(format!("{what} is malformed")))
}

fn told(written: ToldMessage) -> Result<Told, Wrong> {
    Ok(match written {
        ToldMessage::Acceptor(reply) => Told::Acceptor(reply.read()?),
        ToldMessage::Views(all) => {
            Told::Views(all.into_iter().map(Spelled::from_doc).collect::<Result<_, _>>()?)
        }
        ToldMessage::Adopted { epoch } => Told::Adopted(epoch),
        ToldMessage::Released { generation, seal, release, seen } => {
            let seen = seen.into_iter().map(|(name, seq)| Ok((origin(&name)?, seq)));
            let seen = seen.collect::<Result<_, Wrong>>()?;
            Told::Released(Report { generation, seal, release: release.read()?, seen })
        }
        ToldMessage::Frontier { applied, seal } => Told::Frontier(opening::Told { applied, seal }),
        ToldMessage::Rows(rows) => Told::Rows(copied(rows)?),
        ToldMessage::Latest { rows, next } => Told::Latest(copied(rows)?, next),
        ToldMessage::Lodged(LodgedPart::Done) => Told::Lodged(Lodged::Done),
        ToldMessage::Lodged(LodgedPart::GateMoved) => Told::Lodged(Lodged::GateMoved),
        ToldMessage::Lodged(LodgedPart::Superseded) => Told::Lodged(Lodged::Superseded),
        ToldMessage::Key { status } => Told::Key(status),
        ToldMessage::Done => Told::Done,
        ToldMessage::Refused { why } => Told::Refused(why),
    })
}

fn copied(rows: Vec<CopiedRowPart>) -> Result<Vec<CopiedRow>, Wrong> {
    rows.into_iter().map(CopiedRowPart::read).collect()
}

fn json(written: &impl Serialize) -> Bytes {
    serde_json::to_vec(written).expect("texts, numbers and lists always make JSON").into()
}

/// Reads one of `names` with its contents. The parser's own words are not passed on: they quote the
/// message.
fn read<T: DeserializeOwned>(json: &[u8], names: &[&str]) -> Result<T, String> {
    serde_json::from_slice(json).map_err(|error| {
        if let Some(why) = str::from_utf8(json).ok().and_then(newer) {
            return why.to_owned();
        }
        let name = named(json).unwrap_or_default();
        let is_name = name.len() <= 32 && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
        match is_name && !name.is_empty() && !names.contains(&name.as_str()) {
            true => format!("{name:?} is not known here: {VERSIONS}"),
            false => format!("malformed at byte {} of line {}: {VERSIONS}", error.column(), error.line()),
        }
    })
}

/// The name that the message gives itself.
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
