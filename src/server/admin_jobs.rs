//! Accepted requests in the admin API: the lists of jobs, and the acts on dead letters.
//!
//! An act that names another `region` is passed on to it, if the operator shows a token. Neither
//! paths nor bodies are logged.

use std::sync::Arc;

use http::StatusCode;
use serde::{Deserialize, Serialize};

use super::admin_acts::act_at;
use super::admin_answer::{Acted, Answer, bad, coded, forbidden, json, problem};
use super::admin_posted::{ActBody, MOST_TEXT, Posted, journalled};
use crate::gateway::instance::Gateway;
use crate::gateway::operator::dead_letters::JobAct;
use crate::ports::Ports;
use crate::ports::jobs::{Act, Acted as Outcome};
use crate::protocol::job::JobState;
use crate::protocol::key::KeyId;
use crate::protocol::region::RegionName;

#[derive(Serialize)]
struct Done {
    done: &'static str,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    dry_run: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Why {
    reason: String,
    actor: String,
    /// The region that accepted the request; this one if absent.
    region: Option<String>,
    #[serde(default)]
    dry_run: bool,
}

journalled!(Why);

pub(super) fn state(query: &str) -> Result<Option<JobState>, Box<Answer>> {
    match query {
        "" => Ok(None),
        "state=dead" => Ok(Some(JobState::Dead)),
        "state=waiting" => Ok(Some(JobState::Waiting)),
        _ => Err(bad("the parameter is state=dead or state=waiting")),
    }
}

pub(super) async fn act<P: Ports, B: ActBody>(
    gateway: &Arc<Gateway<P>>,
    what: JobAct,
    id: KeyId,
    posted: Posted<'_, B>,
) -> Acted {
    let elsewhere = posted.elsewhere();
    let (Why { reason, actor, region, dry_run }, case) = posted.read().await?;
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
    let conflict = |why| coded(StatusCode::CONFLICT, "refused", why);
    let acted = match dry_run {
        true => gateway.rehearse_on_job(&id, what).await,
        false => gateway.act_on_job(&id, what, &Act { actor, reason }).await,
    };
    Ok(match acted {
        Ok(Outcome::Done) => {
            let done = match what {
                JobAct::Retry => "retry",
                JobAct::Drop => "drop",
            };
            json(StatusCode::OK, &Done { done, dry_run })
        }
        Ok(Outcome::Absent) => problem(StatusCode::NOT_FOUND, "this region has no job of that key"),
        Ok(Outcome::Waiting) => conflict("the job is no dead letter: a worker runs it when it is due"),
        Ok(Outcome::Erased) => {
            conflict("its request is past its retention and was erased: it can only be dropped")
        }
        Ok(Outcome::Running) => {
            let why = "a worker has it, or an attempt may be running: try again once that is over";
            coded(StatusCode::CONFLICT, "not-yet", why)
        }
        Ok(Outcome::GateMoved) => problem(StatusCode::SERVICE_UNAVAILABLE, "the store is not approved yet"),
        Err(error) => problem(StatusCode::SERVICE_UNAVAILABLE, &error.to_string()),
    })
}
