//! Regions in the admin API: founding, plans and changes of the ring, drains, returns, takeovers.
//!
//! A refusal carries the act's `code`: 503 `not-yet` may succeed later, 404 is `unknown-region`,
//! all others are 409. With `dry_run` in its body an act is only rehearsed. No body is logged: a
//! ring holds the seed.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use serde::{Deserialize, Serialize};

use super::Gateway;
use super::admin_http::{
    Acted, Answer, Case, Claimed, MOST_TEXT, Posted, bad, coded, from_store, json, problem,
};
use crate::gateway::authority::act_error::ActError;
use crate::gateway::authority::acts::dry_run::Act;
use crate::gateway::credentials::operators::Weighty;
use crate::ports::upkeep::Place;
use crate::protocol::key::Tenant;
use crate::protocol::region::RegionName;
use crate::protocol::ring::Ring;
use crate::protocol::ring_spec::{Pin, PlaceBy, RegionSpec, RingSpec};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct InitRequest {
    escrow: BTreeSet<String>,
    epoch_above: Option<u64>,
    #[serde(default)]
    dry_run: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PlanRequest {
    ring: RingRequest,
    escrow: BTreeSet<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ApplyRequest {
    ring: RingRequest,
    escrow: BTreeSet<String>,
    expect_epoch: u64,
    actor: Claimed,
    #[serde(default)]
    dry_run: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RingRequest {
    seed: u64,
    place_by: PlaceBy,
    regions: Vec<RegionRequest>,
    pins: Vec<PinRequest>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RegionRequest {
    name: String,
    weight: u32,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PinRequest {
    tenant: String,
    regions: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RegionActRequest {
    region: String,
    actor: Claimed,
    #[serde(default)]
    reason: String,
    #[serde(default)]
    force: bool,
    #[serde(default)]
    dry_run: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TakeoverRequest {
    region: String,
    actor: Claimed,
    reason: String,
    #[serde(default)]
    accept_risk: bool,
    #[serde(default)]
    dry_run: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BreakGlassRequest {
    stopped: BTreeSet<String>,
    /// Last genuine epoch, if the register was poisoned.
    #[serde(default)]
    poisoned_above: Option<u64>,
    actor: Claimed,
    attest: String,
    #[serde(default)]
    dry_run: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RaiseRequest {
    actor: Claimed,
    /// If set, reports each region's protocol version and changes nothing.
    #[serde(default)]
    dry_run: bool,
}

/// Each region's protocol version, and the fact that nothing was raised.
#[derive(Serialize)]
struct Compared<T> {
    dry_run: bool,
    #[serde(flatten)]
    found: T,
}

/// Performs an act under `/v1/admin/`. `path` is the rest of the path.
pub(super) async fn act(gateway: &Arc<Gateway>, path: &[&str], posted: Posted<'_>) -> Acted {
    match path {
        ["init"] => {
            let (InitRequest { escrow, epoch_above, dry_run }, _) = posted.read().await?;
            let escrow = routes(escrow);
            if dry_run {
                return answer(gateway.rehearse(Act::Found { escrow, epoch_above }).await);
            }
            answer(gateway.found(escrow, epoch_above).await)
        }
        ["ring", "plan"] => {
            let (PlanRequest { ring, escrow }, _) = posted.read().await?;
            answer(gateway.plan(&*built(ring)?, &routes(escrow)))
        }
        ["ring", "apply"] => apply(gateway, posted).await,
        ["region", "drain"] => drain(gateway, posted).await,
        ["region", "resume"] => resume(gateway, posted).await,
        ["region", "rebuild"] => take(gateway, true, posted).await,
        ["takeover"] => take(gateway, false, posted).await,
        ["break-glass"] => break_glass(gateway, posted).await,
        ["protocol", "raise"] => {
            let (RaiseRequest { actor, dry_run }, case) = posted.read().await?;
            let actor = text("actor", case.actor(actor))?;
            if dry_run {
                return answer(gateway.protocol().await.map(|found| Compared { dry_run, found }));
            }
            answer(gateway.raise_protocol(&actor).await)
        }
        _ => Err(Box::new(problem(
            StatusCode::NOT_FOUND,
            "post to /v1/admin/init, ring/plan, ring/apply, region/drain, region/resume, region/rebuild, takeover, break-glass or protocol/raise",
        ))),
    }
}

async fn apply(gateway: &Arc<Gateway>, posted: Posted<'_>) -> Acted {
    let (ApplyRequest { ring, escrow, expect_epoch, actor, dry_run }, case) = posted.read().await?;
    let actor = text("actor", case.actor(actor))?;
    let (ring, escrow) = (built(ring)?, routes(escrow));
    if dry_run {
        return answer(gateway.rehearse(Act::Apply { ring, escrow, expect_epoch }).await);
    }
    led_to(gateway.apply(ring, escrow, expect_epoch, &actor).await)
}

async fn drain(gateway: &Arc<Gateway>, posted: Posted<'_>) -> Acted {
    let (RegionActRequest { region, actor, reason, force, dry_run }, case) = posted.read().await?;
    let (region, actor) = (&region_of(&region)?, text("actor", case.actor(actor))?);
    // An operator gives a reason for a step that breaks a rule.
    let reason = if force { text("reason", reason)? } else { optional("reason", reason)? };
    if dry_run {
        return answer(gateway.rehearse(Act::Drain { region, force }).await);
    }
    led_to(gateway.drain(region, force, &actor, &reason).await)
}

async fn resume(gateway: &Arc<Gateway>, posted: Posted<'_>) -> Acted {
    let (RegionActRequest { region, actor, reason, force, dry_run }, case) = posted.read().await?;
    if force || !reason.is_empty() {
        return Err(bad("a return takes neither force nor reason"));
    }
    let (region, actor) = (&region_of(&region)?, text("actor", case.actor(actor))?);
    if dry_run {
        return answer(gateway.rehearse(Act::Resume { region }).await);
    }
    led_to(gateway.resume(region, &actor).await)
}

/// Takes the keys of a lost region over, or has it rebuilt.
async fn take(gateway: &Arc<Gateway>, rebuilds: bool, posted: Posted<'_>) -> Acted {
    let (TakeoverRequest { region, actor, reason, accept_risk, dry_run }, case) = posted.read().await?;
    let (mut actor, reason) = (text("actor", case.actor(actor))?, text("reason", reason)?);
    let region = &region_of(&region)?;
    if dry_run {
        let act = match rebuilds {
            true => Act::Rebuild { region, accept_risk },
            false => Act::Takeover { region, accept_risk },
        };
        return answer(gateway.rehearse(act).await);
    }
    if accept_risk {
        actor = seconded(gateway, &case, Weighty::AcceptRisk, actor)?;
    }
    match rebuilds {
        true => answer(gateway.rebuild(region, accept_risk, &actor, &reason).await),
        false => answer(gateway.takeover(region, accept_risk, &actor, &reason).await),
    }
}

async fn break_glass(gateway: &Arc<Gateway>, posted: Posted<'_>) -> Acted {
    let (BreakGlassRequest { stopped, poisoned_above, actor, attest, dry_run }, case) = posted.read().await?;
    let (actor, attest) = (text("actor", case.actor(actor))?, text("attest", attest)?);
    let stopped = stopped.iter().map(|name| region_of(name));
    let stopped = &stopped.collect::<Result<BTreeSet<_>, _>>()?;
    if poisoned_above.is_none() && stopped.is_empty() {
        return Err(bad("name at least one region or witness that is stopped"));
    }
    if dry_run {
        let act = match poisoned_above {
            Some(above) => Act::LeavePoison { above, stopped },
            None => Act::BreakGlass { stopped },
        };
        return answer(gateway.rehearse(act).await);
    }
    let actor = seconded(gateway, &case, Weighty::BreakGlass, actor)?;
    led_to(match poisoned_above {
        Some(above) => gateway.leave_poison(above, stopped, &actor, &attest).await,
        None => gateway.break_glass(stopped, &actor, &attest).await,
    })
}

/// The name for the journal, once a second person approved an act of this kind.
fn seconded(gateway: &Gateway, case: &Case<'_>, what: Weighty, actor: String) -> Result<String, Box<Answer>> {
    case.judge(what, actor, format!("epoch {}", gateway.epoch()), (gateway.region(), gateway.date()))
}

/// One page of the doubles and late answers in the region's journal.
pub(super) async fn findings(gateway: &Gateway, query: &str) -> Answer {
    let (mut most, mut after, mut days) = (100, None, 30);
    for (name, value) in query.split('&').filter_map(|pair| pair.split_once('=')) {
        let taken = match name {
            "limit" => {
                value.parse().ok().filter(|limit| (1..=1_000).contains(limit)).map(|limit| most = limit)
            }
            "after" => value.parse().ok().map(|place| after = Some(Place(place))),
            "days" => value.parse().ok().filter(|back| (1..=100_000).contains(back)).map(|back| days = back),
            _ => None,
        };
        if taken.is_none() {
            let why = "the parameters are limit (1 to 1000), after (what `next` said) and days (1 to 100000)";
            return problem(StatusCode::BAD_REQUEST, why);
        }
    }
    from_store(gateway.findings(after, Duration::from_secs(days * 86_400), most).await)
}

fn led_to(epoch: Result<u64, ActError>) -> Acted {
    answer(epoch.map(|epoch| serde_json::json!({ "epoch": epoch })))
}

fn answer<T: Serialize>(done: Result<T, ActError>) -> Acted {
    match done {
        Ok(done) => Ok(json(StatusCode::OK, &done)),
        Err(error) => {
            let status = match error.code {
                "not-yet" => StatusCode::SERVICE_UNAVAILABLE,
                "unknown-region" => StatusCode::NOT_FOUND,
                _ => StatusCode::CONFLICT,
            };
            Err(Box::new(coded(status, error.code, &error.detail)))
        }
    }
}

fn routes(names: BTreeSet<String>) -> BTreeSet<Arc<str>> {
    names.into_iter().map(Arc::from).collect()
}

fn region_of(name: &str) -> Result<RegionName, Box<Answer>> {
    RegionName::parse(name).map_err(|error| bad(&error.to_string()))
}

fn text(name: &str, text: String) -> Result<String, Box<Answer>> {
    match text.trim() {
        "" => Err(bad(&format!("say {name}: it is journalled"))),
        _ => optional(name, text),
    }
}

fn optional(name: &str, text: String) -> Result<String, Box<Answer>> {
    if text.len() > MOST_TEXT || text.contains('\0') {
        return Err(bad(&format!("{name} has at most {MOST_TEXT} bytes and no zero bytes")));
    }
    Ok(text)
}

fn built(said: RingRequest) -> Result<Arc<Ring>, Box<Answer>> {
    let RingRequest { seed, place_by, regions, pins } = said;
    let region = |RegionRequest { name, weight }| Ok(RegionSpec { name: region_of(&name)?, weight });
    let regions = regions.into_iter().map(region).collect::<Result<_, Box<Answer>>>()?;
    let pin = |PinRequest { tenant, regions }: PinRequest| {
        let tenant = Tenant::parse(&tenant).map_err(|error| bad(&error.to_string()))?;
        let regions = regions.iter().map(|name| region_of(name)).collect::<Result<_, Box<Answer>>>()?;
        Ok(Pin { tenant, regions })
    };
    let pins = pins.into_iter().map(pin).collect::<Result<_, Box<Answer>>>()?;
    let ring = Ring::build(&RingSpec { seed, place_by, regions, pins });
    ring.map(Arc::new).map_err(|error| bad(&error.to_string()))
}
