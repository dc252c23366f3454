//! The present generation of each region's store: stores are replaced, and the author of a plan may
//! not know it.
//!
//! The register decides, as this store has adopted it. A store that follows no view yet asks its
//! peers, each of which publishes only its own leaves. `publisher` asks them. This file must not
//! guess: for a silent peer the plan's generation stays, and its part waits.

use std::collections::BTreeMap;

use serde_json::Value;
use tokio_postgres::Client;
use tokio_postgres::types::Json;

use super::super::super::views::from_value;
use super::plan::Plan;
use super::publisher;
use super::queries::{Error, get, holds, query};
use crate::protocol::region::{Origin, RegionName};
use crate::protocol::view::View;

const WHAT: &str = "reading the view";

/// The plan with the present generations of the other stores. Its own generation stays.
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

/// The view that this store follows; `None` if there is no store or no view.
pub(super) async fn view(client: &Client) -> Result<Option<std::sync::Arc<View>>, Error> {
    if !holds(client, WHAT, "select to_regclass('onceway.gate') is not null", &[]).await? {
        return Ok(None);
    }
    let rows = query(client, WHAT, "select view from onceway.gate", &[]).await?;
    let Some(row) = rows.first() else { return Ok(None) };
    let Some(Json(doc)) = get::<Option<Json<Value>>>(row, WHAT, 0)? else { return Ok(None) };
    from_value(&doc)
        .map(Some)
        .map_err(|why| Error::Foreign(format!("the view in its gate cannot be read: {why}")))
}
