//! Acts that end an attempt by hand, on keys in doubt and on accepted requests; their lists.
//!
//! With `dry_run` in the body nothing is changed. `gateway::operator` decides. An act that another
//! region has to do is passed on to it, if the operator shows a token. Neither paths nor bodies are
//! logged.

use std::sync::Arc;

use http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::Gateway;
use super::admin_http::{
    Acted, Answer, Case, Claimed, MOST_TEXT, Posted, answer, bad, coded, forbidden, json, problem,
};
use crate::gateway::credentials::operators::Weighty;
use crate::gateway::operator::acts::Refusal;
use crate::gateway::operator::dead_letters::JobAct;
use crate::gateway::operator::key::KeyStatus;
use crate::gateway::operator::percent;
use crate::ports::jobs::{self, Acted as Outcome};
use crate::ports::peers::{Proof, Question};
use crate::ports::upkeep::{Act, Ruling, Who};
use crate::protocol::job::JobState;
use crate::protocol::key::{self, KeyId, Tenant};
use crate::protocol::record::{self, AnswerBody};
use crate::protocol::region::RegionName;

/// Most keys in one page.
const MOST: u32 = 1_000;

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct KeyRequest {
    reason: String,
    actor: Claimed,
    status: Option<u16>,
    headers: Vec<(String, String)>,
    body: Option<String>,
    dry_run: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct JobRequest {
    reason: String,
    actor: Claimed,
    /// The region that accepted the request; this one if absent.
    region: Option<String>,
    #[serde(default)]
    dry_run: bool,
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
    actor: Claimed,
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

/// An act on a key in doubt, or on an accepted request.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum What {
    Settle,
    Release,
    Job(JobAct),
}

impl What {
    pub(super) fn of(name: &str) -> Option<Self> {
        match name {
            "settle" => Some(Self::Settle),
            "release" => Some(Self::Release),
            "retry" => Some(Self::Job(JobAct::Retry)),
            "drop" => Some(Self::Job(JobAct::Drop)),
            _ => None,
        }
    }

    /// The list of the API with the things that it is for.
    pub(super) fn list(self) -> &'static str {
        if let Self::Job(_) = self { "jobs" } else { "keys" }
    }

    /// The act that a path asks for, and the tenant and the key there.
    pub(super) fn asked<'a>(path: &[&'a str]) -> Option<(Self, &'a str, &'a str)> {
        let ["v1", list, tenant, key, name] = path else { return None };
        let what = Self::of(name).filter(|what| what.list() == *list)?;
        Some((what, tenant, key))
    }
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

pub(super) fn job_state(query: &str) -> Result<Option<JobState>, Box<Answer>> {
    match query {
        "" => Ok(None),
        "state=dead" => Ok(Some(JobState::Dead)),
        "state=waiting" => Ok(Some(JobState::Waiting)),
        _ => Err(bad("the parameter is state=dead or state=waiting")),
    }
}

pub(super) async fn act(gateway: &Arc<Gateway>, what: What, id: KeyId, posted: Posted<'_>) -> Acted {
    match what {
        What::Settle | What::Release => on_key(gateway, what == What::Settle, id, posted).await,
        What::Job(what) => on_job(gateway, what, id, posted).await,
    }
}

async fn on_key(gateway: &Arc<Gateway>, settles: bool, id: KeyId, posted: Posted<'_>) -> Acted {
    let elsewhere = posted.elsewhere();
    let (KeyRequest { reason, actor, status, headers, body, dry_run }, case) = posted.read().await?;
    let ruling = match (settles, status) {
        (true, Some(status)) => Ruling::Settled(record::Answer {
            status,
            headers: headers.into_iter().map(|(name, value)| (name.to_lowercase(), value.into())).collect(),
            body: AnswerBody::Kept(body.unwrap_or_default().into_bytes()),
        }),
        (true, None) => return Err(bad("name the status that clients shall be given")),
        (false, None) if headers.is_empty() && body.is_none() => Ruling::Released,
        (false, None | Some(_)) => {
            return Err(bad("a released key has no answer: leave status, headers and body out"));
        }
    };
    let mut act = Act { ruling, actor: case.actor(actor), reason };
    if let (Some(proof), Some(owner)) = (elsewhere, gateway.owner_elsewhere(&id)) {
        return act_at(gateway, &owner, &case, proof).await;
    }
    if dry_run {
        let would_be = if settles { "settled" } else { "released" };
        let key = gateway.rehearse_rule(&id, &act).await.map_err(refused)?;
        return Ok(json(StatusCode::OK, &Rehearsed { dry_run, would_be, key }));
    }
    if !settles && case.needs(Weighty::Release) {
        let status = gateway.key_status(&id).await.map_err(Refusal::Store).map_err(refused)?;
        let finds = seen(&serde_json::to_value(&status).unwrap_or_default());
        act.actor = case.judge(Weighty::Release, act.actor, finds, (gateway.region(), gateway.date()))?;
    }
    Ok(json(StatusCode::OK, &gateway.rule(&id, &act).await.map_err(refused)?))
}

async fn on_job(gateway: &Arc<Gateway>, what: JobAct, id: KeyId, posted: Posted<'_>) -> Acted {
    let elsewhere = posted.elsewhere();
    let (JobRequest { reason, actor, region, dry_run }, case) = posted.read().await?;
    let actor = case.actor(actor);
    if [&reason, &actor].into_iter().any(|text| text.trim().is_empty() || text.len() > MOST_TEXT) {
        return Err(bad("say who acts (actor) and why (reason), at most 1000 bytes each"));
    }
    if [&reason, &actor].into_iter().any(|text| text.contains('\0')) {
        return Err(bad("the reason and the actor cannot hold zero bytes"));
    }
    if let Some(region) = region.filter(|region| region != gateway.region().as_str()) {
        let region = RegionName::parse(&region).map_err(|error| bad(&error.to_string()))?;
        let why = || format!("{region} acts only for an operator whom it knows: show a token");
        let proof = elsewhere.ok_or_else(|| forbidden(why()))?;
        return act_at(gateway, &region, &case, proof).await;
    }
    let acted = match dry_run {
        true => gateway.rehearse_on_job(&id, what).await,
        false => gateway.act_on_job(&id, what, &jobs::Act { actor, reason }).await,
    };
    let conflict = |code, why| coded(StatusCode::CONFLICT, code, why);
    Ok(match acted {
        Ok(Outcome::Done) => {
            let mut done = json!({ "done": if what == JobAct::Retry { "retry" } else { "drop" } });
            if dry_run {
                done["dry_run"] = true.into();
            }
            json(StatusCode::OK, &done)
        }
        Ok(Outcome::Absent) => problem(StatusCode::NOT_FOUND, "this region has no job of that key"),
        Ok(Outcome::Waiting) => {
            conflict("refused", "the job is no dead letter: a worker runs it when it is due")
        }
        Ok(Outcome::Erased) => {
            conflict("refused", "its request is past its retention and was erased: it can only be dropped")
        }
        Ok(Outcome::Running) => {
            conflict("not-yet", "a worker has it, or an attempt may be running: try again once that is over")
        }
        Ok(Outcome::GateMoved) => problem(StatusCode::SERVICE_UNAVAILABLE, "the store is not approved yet"),
        Err(error) => problem(StatusCode::SERVICE_UNAVAILABLE, &error.to_string()),
    })
}

/// Has another region act, and answers as it did.
async fn act_at(gateway: &Gateway, there: &RegionName, case: &Case<'_>, proof: Proof) -> Acted {
    let act = Question::Act { path: case.path.to_owned(), body: case.body.to_string(), proof };
    let (status, body) = gateway.act_at(there, act).await.map_err(Refusal::Store).map_err(refused)?;
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::BAD_GATEWAY);
    let kind = if status.is_success() { "application/json" } else { "application/problem+json" };
    Ok(answer(status, kind, body.into_bytes()))
}

/// Has the keys in doubt of a route go by its rule of now, or by `park`, or counts them only.
pub(super) async fn change_rule(gateway: &Gateway, posted: Posted<'_>) -> Acted {
    let (RuleRequest { route, recovery, reason, actor, dry_run }, case) = posted.read().await?;
    let mut actor = case.actor(actor);
    // Keys that run again are released. Those in doubt since then have this rule already.
    if recovery == "rerun" && !dry_run {
        actor = case.judge(Weighty::Release, actor, String::new(), (gateway.region(), gateway.date()))?;
    }
    let by = Who { actor: &actor, reason: &reason };
    let change = gateway.change_doubt_rule(&route, &recovery, by, dry_run).await.map_err(refused)?;
    Ok(json(StatusCode::OK, &change))
}

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

pub(super) fn id(tenant: &str, key: &str) -> Result<KeyId, String> {
    let tenant = Tenant::parse(tenant).map_err(|error| error.to_string())?;
    Ok(KeyId::new(tenant, key::Key::parse(key).map_err(|error| error.to_string())?))
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
