//! Keys in the admin API: the pages of their lists, and the acts that end an attempt by hand.
//!
//! With `dry_run` in the body nothing is changed. `gateway::operator` decides. Neither paths nor
//! bodies are logged.

use std::sync::Arc;

use http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::admin_answer::{Acted, Answer, answer, bad, coded, json};
use super::admin_posted::{ActBody, Case, Posted, journalled};
use crate::gateway::credentials::operators::Weighty;
use crate::gateway::instance::Gateway;
use crate::gateway::operator::acts::Refusal;
use crate::gateway::operator::key::KeyStatus;
use crate::gateway::operator::percent;
use crate::ports::Ports;
use crate::ports::peers::{Proof, Question};
use crate::ports::upkeep::{Act, Ruling, Who};
use crate::protocol::key::{self, KeyId, Tenant};
use crate::protocol::record::{self, AnswerBody};
use crate::protocol::region::RegionName;

/// Most keys in one page.
const MOST: u32 = 1_000;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ActRequest {
    #[serde(default)]
    pub(super) reason: String,
    #[serde(default)]
    pub(super) actor: String,
    pub(super) status: Option<u16>,
    #[serde(default)]
    pub(super) headers: Vec<(String, String)>,
    pub(super) body: Option<String>,
    #[serde(default)]
    pub(super) dry_run: bool,
}

/// A route whose doubts shall go by a rule.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RuleRequest {
    route: String,
    /// `rerun`, `probe` or `park`.
    recovery: String,
    #[serde(default)]
    reason: String,
    #[serde(default)]
    actor: String,
    #[serde(default)]
    dry_run: bool,
}

/// A key as it is, and its state after the act.
#[derive(Serialize)]
struct Rehearsed {
    dry_run: bool,
    /// `settled` or `released`.
    would_be: &'static str,
    #[serde(flatten)]
    key: KeyStatus,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Verb {
    Settle,
    Release,
}

/// Reads the page from the query: the most entries, and the key after which the page begins.
pub(super) fn page(query: &str) -> Result<(u32, Option<KeyId>), Box<Answer>> {
    let (mut most, mut after) = (100, None);
    for (name, value) in query.split('&').filter_map(|pair| pair.split_once('=')) {
        match name {
            "limit" => match value.parse() {
                Ok(limit @ 1..=MOST) => most = limit,
                Ok(_) | Err(_) => return Err(bad("limit is 1 to 1000")),
            },
            "after" => match percent::decode(value).split_once('/').map(|(tenant, key)| id(tenant, key)) {
                Some(Ok(id)) => after = Some(id),
                Some(Err(_)) | None => return Err(bad("after is TENANT/KEY, percent-encoded")),
            },
            _ => return Err(bad("the parameters are limit and after")),
        }
    }
    Ok((most, after))
}

/// Performs an act on a key, or rehearses it.
pub(super) async fn rule<P: Ports, B: ActBody>(
    gateway: &Arc<Gateway<P>>,
    verb: Verb,
    id: KeyId,
    posted: Posted<'_, B>,
) -> Acted {
    let elsewhere = posted.elsewhere();
    let (said, case): (ActRequest, _) = posted.read().await?;
    let dry_run = said.dry_run;
    let mut act = act(verb, said).map_err(bad)?;
    if let (Some(proof), Some(owner)) = (elsewhere, gateway.owner_elsewhere(&id)) {
        return act_at(gateway, &owner, &case, proof).await;
    }
    if dry_run {
        let would_be = match verb {
            Verb::Settle => "settled",
            Verb::Release => "released",
        };
        let key = gateway.rehearse_rule(&id, &act).await.map_err(refused)?;
        return Ok(json(StatusCode::OK, &Rehearsed { dry_run, would_be, key }));
    }
    if verb == Verb::Release && case.needs(Weighty::Release) {
        let status = gateway.key_status(&id).await.map_err(Refusal::Store).map_err(refused)?;
        let finds = seen(&serde_json::to_value(&status).unwrap_or_default());
        act.actor = case.judge(Weighty::Release, act.actor, finds, (gateway.region(), gateway.date()))?;
    }
    Ok(json(StatusCode::OK, &gateway.rule(&id, &act).await.map_err(refused)?))
}

/// Has another region act, and answers as it did.
pub(super) async fn act_at<P: Ports>(
    gateway: &Gateway<P>,
    there: &RegionName,
    case: &Case<'_>,
    proof: Proof,
) -> Acted {
    let act = Question::Act { path: case.path.to_owned(), body: case.body.to_string(), proof };
    let (status, body) = gateway.act_at(there, act).await.map_err(Refusal::Store).map_err(refused)?;
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::BAD_GATEWAY);
    let kind = if status.is_success() { "application/json" } else { "application/problem+json" };
    Ok(answer(status, kind, body.into_bytes()))
}

/// Has the keys in doubt of a route go by its rule of now, or by `park`, or counts them only.
pub(super) async fn change_rule<P: Ports, B: ActBody>(gateway: &Gateway<P>, posted: Posted<'_, B>) -> Acted {
    let (RuleRequest { route, recovery, reason, mut actor, dry_run }, case) = posted.read().await?;
    // Keys that run again are released. Those in doubt since then have this rule already.
    if recovery == "rerun" && !dry_run {
        actor = case.judge(Weighty::Release, actor, String::new(), (gateway.region(), gateway.date()))?;
    }
    let by = Who { actor: &actor, reason: &reason };
    let change = gateway.change_doubt_rule(&route, &recovery, by, dry_run).await.map_err(refused)?;
    Ok(json(StatusCode::OK, &change))
}

journalled!(ActRequest, RuleRequest);

/// Names a key's records as an operator sees them. An act is for these and no others.
pub(super) fn seen(status: &Value) -> String {
    let word = |value: &Value| match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let rows = status["rows"].as_array().into_iter().flatten();
    let one = |row: &Value| ["origin", "token", "state"].map(|field| word(&row[field])).join(" ");
    rows.map(one).collect::<Vec<_>>().join(", ")
}

/// Parses a tenant and a key, or says what is wrong with them.
pub(super) fn id(tenant: &str, key: &str) -> Result<KeyId, String> {
    let tenant = Tenant::parse(tenant).map_err(|error| error.to_string())?;
    Ok(KeyId::new(tenant, key::Key::parse(key).map_err(|error| error.to_string())?))
}

/// Makes the act from the body, or says what is wrong with it.
pub(super) fn act(verb: Verb, said: ActRequest) -> Result<Act, &'static str> {
    let ActRequest { reason, actor, status, headers, body, dry_run: _ } = said;
    let ruling = match (verb, status) {
        (Verb::Settle, Some(status)) => Ruling::Settled(record::Answer {
            status,
            headers: headers.into_iter().map(|(name, value)| (name.to_lowercase(), value.into())).collect(),
            body: AnswerBody::Kept(body.unwrap_or_default().into_bytes()),
        }),
        (Verb::Settle, None) => return Err("name the status that clients shall be given"),
        (Verb::Release, None) if headers.is_empty() && body.is_none() => Ruling::Released,
        (Verb::Release, None | Some(_)) => {
            return Err("a released key has no answer: leave status, headers and body out");
        }
    };
    Ok(Act { ruling, actor, reason })
}

fn refused(refusal: Refusal) -> Box<Answer> {
    // The code says whether another try can succeed.
    let (status, code) = match &refusal {
        Refusal::Malformed(_) => (StatusCode::BAD_REQUEST, "malformed"),
        Refusal::Closed { .. } | Refusal::Running { .. } => (StatusCode::CONFLICT, "not-yet"),
        // An operator has to look at the changed key before the next act.
        Refusal::NotOwner { .. } | Refusal::NotInDoubt { .. } | Refusal::Changed => {
            (StatusCode::CONFLICT, "refused")
        }
        Refusal::Store(_) => (StatusCode::SERVICE_UNAVAILABLE, "not-yet"),
    };
    Box::new(coded(status, code, &refusal.to_string()))
}
