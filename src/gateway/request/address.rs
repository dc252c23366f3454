//! The status address: a client reads its key's state there, without sending the request again.
//!
//! `GET /.well-known/onceway/requests/{key}`, with the tenant's credential, for any key, from any
//! region. A key of another tenant does not exist here.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::request::Parts;
use http::{Method, Request, Response, Uri};
use serde::Serialize;

use super::problems::{KEYS, Kind, Problem};
use super::{admit, finish, reply};
use crate::gateway::instance::Gateway;
use crate::gateway::limits::quota::Charged;
use crate::gateway::operator::percent;
use crate::gateway::policy::route::Dialect;
use crate::gateway::telemetry::metrics;
use crate::gateway::telemetry::times::Where;
use crate::gateway::telemetry::trace::{self, Trace};
use crate::ports::peers::{Forward, ForwardReply};
use crate::ports::store::StoreError;
use crate::ports::{Body, Dice, Jobs, Peers, Ports};
use crate::protocol::authority::Closed;
use crate::protocol::decide::same_principal;
use crate::protocol::digest::Digest32;
use crate::protocol::job::JobState;
use crate::protocol::key::{Key, KeyId};
use crate::protocol::record::{Answer, AnswerBody, Reading, State};
use crate::protocol::region::RegionName;
use crate::protocol::snapshot::Here;
use crate::protocol::time::Moment;

/// Time to wait for another region's answer. After that the local copy answers.
const OWNER_WITHIN: Duration = Duration::from_secs(3);

pub fn is_asked(method: &Method, path: &str) -> bool {
    (*method == Method::GET || *method == Method::HEAD) && path.starts_with(KEYS)
}

/// The state of a key. Names and words are a contract: add, never rename.
#[derive(Serialize)]
pub struct KeyState {
    /// `accepted`, `running`, `in_doubt`, `settled`, `released`, `expired` or `dead`.
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<u16>,
    /// End of the key's promised retention, as in `Idempotency-Expires`.
    expires: Option<String>,
    /// The request that made the newest attempt, or was accepted.
    request_id: String,
    attempt: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    answer: Option<StoredAnswer>,
}

#[derive(Serialize)]
struct StoredAnswer {
    status: u16,
    headers: Vec<(String, String)>,
    /// Absent if it was over the route's stored limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    body: Option<String>,
    /// `text` or `base64`.
    #[serde(skip_serializing_if = "Option::is_none")]
    encoding: Option<&'static str>,
}

/// A question about a key.
struct Asked {
    id: KeyId,
    /// The caller's principal.
    principal: Option<Digest32>,
    /// Its cost for the tenant.
    charged: Charged,
}

/// Answers a client: from a final record here, else from the owner, else from the copy here.
pub async fn answer<P: Ports>(
    gateway: &Arc<Gateway<P>>,
    request: Request<Body>,
    arrived: Moment,
) -> Response<Body> {
    let (mut head, _) = request.into_parts();
    let asked = match asked(gateway, &head) {
        Ok(asked) => asked,
        Err(problem) => {
            let response = gateway.refused(&problem, Dialect::Plain, &trace::of(&head.headers));
            return gateway.timed("refused", None, Where::Here, arrived, response);
        }
    };
    trace::follow(&mut head.headers, gateway.ports.dice().request_id());
    let trace = trace::of(&head.headers);
    let status_answer = found(gateway, &asked, head).await;
    looked_up(gateway, &asked.id, trace, &status_answer);
    let StatusAnswer { verdict, code, response } = status_answer;
    if !reply::says_nothing_is_there(&response) {
        asked.charged.give_back(asked.id.tenant(), true);
    }
    let from = if verdict == "forwarded" { Where::Forwarded } else { Where::Here };
    gateway.timed(if code == "-" { "looked_up" } else { "refused" }, None, from, arrived, response)
}

struct StatusAnswer {
    verdict: &'static str,
    code: &'static str,
    response: Response<Body>,
}

impl StatusAnswer {
    fn of(known: Result<(&'static str, Response<Body>), Problem>) -> Self {
        match known {
            Ok((verdict, response)) => Self { verdict, code: "-", response },
            Err(problem) => {
                metrics::refused(&problem);
                let response = reply::refuse(&problem, Dialect::Plain);
                Self { verdict: "refused", code: problem.code(), response }
            }
        }
    }
}

async fn found<P: Ports>(gateway: &Arc<Gateway<P>>, asked: &Asked, head: Parts) -> StatusAnswer {
    let from_elsewhere = |response: Response<Body>| {
        let code = finish::code(response.headers());
        StatusAnswer { verdict: "forwarded", code, response }
    };
    let mut refusal = None;
    if let Some(owner) = gateway.view().owner(&asked.id).filter(|owner| **owner != gateway.settings.me)
        && !is_final(gateway, &asked.id).await
    {
        match from_owner(gateway, asked, owner, head).await {
            Some(response) if !response.status().is_server_error() => return from_elsewhere(response),
            other => refusal = other,
        }
    }
    match (here(gateway, asked).await, refusal) {
        // An owner that is up and could not answer does not prove that the key is unknown.
        (Err(problem), Some(refusal)) if problem.kind == Kind::KeyUnknown => from_elsewhere(refusal),
        (known, _) => StatusAnswer::of(known),
    }
}

pub async fn answer_peer<P: Ports>(gateway: &Arc<Gateway<P>>, forward: &Forward) -> Response<Body> {
    let (id, principal, charged) = (forward.id.clone(), forward.principal, Charged::default());
    let status_answer = StatusAnswer::of(here(gateway, &Asked { id, principal, charged }).await);
    looked_up(gateway, &forward.id, trace::of(&forward.headers), &status_answer);
    status_answer.response
}

/// Logs the one line per question, at each gateway that it reaches.
fn looked_up<P: Ports>(gateway: &Gateway<P>, id: &KeyId, trace: Trace, status_answer: &StatusAnswer) {
    let &StatusAnswer { verdict, code, ref response } = status_answer;
    let (region, epoch, status) = (&gateway.settings.me, gateway.view().epoch(), response.status().as_u16());
    trace::of_key(id, region, epoch);
    trace::answered(verdict, code, status);
    tracing::info!(
        tenant = %id.tenant(), key = %id.digest(), %region, verdict, code, status, epoch, %trace, "looked up"
    );
}

/// The key's state by this region's store, as a word and as an answer.
async fn here<P: Ports>(
    gateway: &Arc<Gateway<P>>,
    asked: &Asked,
) -> Result<(&'static str, Response<Body>), Problem> {
    let after = gateway.jittered(Duration::from_secs(1));
    match read_state(gateway, asked).await {
        Ok(Some(known)) => Ok((known.state, reply::state(&known, &gateway.settings.me))),
        Ok(None) => Err(match gateway.here(&asked.id) {
            Here::Run(_) | Here::Elsewhere(_) => Kind::KeyUnknown.problem(),
            Here::Closed(Closed::Moving | Closed::CatchingUp) => gateway.moving(),
            Here::Closed(Closed::NoLease) => Kind::NotAuthoritative.after(after),
            Here::Nobody => Kind::HomeUnavailable.after(after),
            Here::Unfit(why) => gateway.unfit(&why),
        }),
        Err(error) => {
            tracing::warn!(%error, "a key's state cannot be told");
            Err(Kind::StoreUnavailable.after(after))
        }
    }
}

fn asked<P: Ports>(gateway: &Gateway<P>, head: &Parts) -> Result<Asked, Problem> {
    let caller = admit::find_caller(gateway, &gateway.live(), head)
        .ok_or_else(|| Kind::CredentialInvalid.problem())?;
    let text = percent::decode(head.uri.path().strip_prefix(KEYS).unwrap_or_default());
    let id = KeyId::new(caller.tenant, Key::parse(&text)?);
    let charged = gateway.charge(&gateway.live(), id.tenant(), true)?;
    Ok(Asked { id, principal: caller.principal, charged })
}

async fn is_final<P: Ports>(gateway: &Gateway<P>, id: &KeyId) -> bool {
    let rows = metrics::upkeep("look_up", gateway.rows(id)).await.unwrap_or_default();
    matches!(gateway.read(rows), Reading::Settled(_) | Reading::Gone(_))
}

async fn from_owner<P: Ports>(
    gateway: &Arc<Gateway<P>>,
    asked: &Asked,
    owner: &RegionName,
    head: Parts,
) -> Option<Response<Body>> {
    if gateway.is_silent(owner) {
        return None;
    }
    let forward = Forward {
        id: asked.id.clone(),
        principal: asked.principal,
        method: Method::GET,
        target: head.uri.into_parts().path_and_query.map(Uri::from)?,
        headers: trace::alone(&head.headers),
        body: Bytes::new(),
        request_id: gateway.ports.dice().request_id(),
        epoch: gateway.view().epoch(),
        deadline: OWNER_WITHIN,
    };
    let sent = gateway.ports.peers().forward(owner, forward);
    Some(match gateway.before(gateway.now() + OWNER_WITHIN, sent).await?.ok()? {
        ForwardReply::Answer(response) => response,
        ForwardReply::NotOwner { .. } => reply::refuse(&gateway.moving(), Dialect::Plain),
    })
}

async fn read_state<P: Ports>(gateway: &Gateway<P>, asked: &Asked) -> Result<Option<KeyState>, StoreError> {
    let id = &asked.id;
    let rows = metrics::upkeep("look_up", gateway.rows(id)).await?;
    let own = rows.iter().any(|row| row.origin == gateway.origin && row.accepted);
    let job = if own { gateway.store().job(id).await?.map(|job| job.state) } else { None };
    let (state, row) = match gateway.read(rows) {
        Reading::Absent => return Ok(None),
        Reading::Gone(row) => ("expired", row),
        Reading::Settled(row) => ("settled", row),
        Reading::InProgress(row) => ("running", row),
        Reading::Released(row, _) | Reading::InDoubt(row, _) if job == Some(JobState::Dead) => ("dead", row),
        // Only its own region knows the job of another region's row.
        Reading::Released(row, _) if job.is_some() || (row.accepted && row.origin != gateway.origin) => {
            ("accepted", row)
        }
        Reading::Released(row, _) => ("released", row),
        Reading::InDoubt(row, _) => ("in_doubt", row),
    };
    // A key that is bound to another principal shows nothing, not even its existence.
    if !same_principal(&row, asked.principal) {
        return Ok(None);
    }
    let answer = match &row.state {
        State::Settled { answer, .. } => Some(stored_answer(answer)),
        State::Claimed { .. } | State::InDoubt { .. } | State::Released | State::Tombstone => None,
    };
    Ok(Some(KeyState {
        state,
        status: answer.as_ref().map(|answer| answer.status),
        expires: reply::http_date(row.expires).and_then(|date| Some(date.to_str().ok()?.to_owned())),
        request_id: row.request_id.to_string(),
        attempt: row.token.attempts(),
        answer,
    }))
}

fn stored_answer(answer: &Answer) -> StoredAnswer {
    let headers = answer.headers.iter();
    let headers = headers.map(|(name, value)| (name.clone(), String::from_utf8_lossy(value).into_owned()));
    let (body, encoding) = match &answer.body {
        AnswerBody::NotKept => (None, None),
        AnswerBody::Kept(bytes) => match str::from_utf8(bytes) {
            Ok(text) => (Some(text.to_owned()), Some("text")),
            Err(_) => (Some(STANDARD.encode(bytes)), Some("base64")),
        },
    };
    StoredAnswer { status: answer.status, headers: headers.collect(), body, encoding }
}
