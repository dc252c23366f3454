//! Which build of each region's store a plan is about: stores are replaced, and the plan's maker may not know.
//!
//! What the register says counts, as this store keeps it; a store that follows no view yet asks its peers, each of which publishes its own
//! leaves only. Neighbours: `provision` starts here, `publisher` looks. It must not guess: whoever cannot be asked is taken for what the
//! plan says, and waits.

use std::collections::BTreeMap;

use serde_json::Value;
use tokio_postgres::Client;
use tokio_postgres::types::Json;

use super::super::super::views::{Spelled, ViewDoc};
use super::{Error, Plan, get, holds, publisher, query};
use crate::protocol::region::{Origin, RegionName};
use crate::protocol::view::View;

const WHAT: &str = "reading the view";

/// The plan, for the stores that there are now; its own is as it says.
pub(super) async fn present(client: &Client, plan: &Plan) -> Result<Plan, Error> {
    let view = view(client).await?;
    let mut published = BTreeMap::new();
    for (peer, conninfo) in plan.subscribe.iter().filter(|_| view.is_none()) {
        if let Ok(Some(generation)) = publisher::generation(plan, &peer.region, conninfo).await {
            published.insert(peer.region.clone(), generation);
        }
    }
    let of = |region: &RegionName| match &view {
        Some(view) => view.members().get(region).map(|member| member.generation),
        None => published.get(region).copied(),
    };
    let known = |origin: &Origin| {
        if origin.region == plan.me.region {
            return plan.me.clone();
        }
        let generation = of(&origin.region).unwrap_or(origin.generation);
        Origin { region: origin.region.clone(), generation }
    };
    Ok(Plan {
        all: plan.all.iter().map(known).collect(),
        subscribe: plan.subscribe.iter().map(|(peer, conninfo)| (known(peer), conninfo.clone())).collect(),
        ..plan.clone()
    })
}

/// The view that this store follows, if there is a store and it follows one.
pub(super) async fn view(client: &Client) -> Result<Option<std::sync::Arc<View>>, Error> {
    if !holds(client, WHAT, "select to_regclass('onceway.gate') is not null", &[]).await? {
        return Ok(None);
    }
    let rows = query(client, WHAT, "select view from onceway.gate", &[]).await?;
    let Some(row) = rows.first() else { return Ok(None) };
    let Some(Json(doc)) = get::<Option<Json<Value>>>(row, WHAT, 0)? else { return Ok(None) };
    let view = ViewDoc::read(&doc).and_then(Spelled::from_doc);
    view.map(Some).map_err(|why| Error::Foreign(format!("the view in its gate cannot be read: {why}")))
}
