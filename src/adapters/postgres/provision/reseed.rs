//! Follows a peer anew whose slot was lost, or whose rows a promoted server may lack:
//! `onceway store reseed`.
//!
//! This store may hold the only rows of a key that this region owns by now, so the peer's rows stay
//! readable. In one transaction they become imported rows, like those that survivors give one
//! another, known to be whole up to the present heartbeat. Their leaf is emptied by DELETE: after
//! TRUNCATE, a claim that began earlier would see neither the old rows nor the imported ones. Then
//! the leaf is copied whole. A subscription that is intact is left alone.

use tokio_postgres::Client;

use super::super::{names, statements};
use super::mesh;
use super::plan::{Error, Plan, Report, Status, execute, get, query};
use super::publisher::{self, Publisher, Way};
use crate::protocol::region::{Origin, RegionName};

const WHAT: &str = "keeping the rows of a peer";

/// A subscription that may be made anew.
struct Lost<'a> {
    way: Way<'a>,
    publisher: Publisher,
    /// If it still exists, it ends first.
    found: Option<mesh::Subscribed>,
}

/// Checks that rows of the peer are missing or may be, so that the peer may be followed anew.
/// Changes nothing.
async fn lost<'a>(client: &Client, plan: &'a Plan, from: &RegionName) -> Result<Lost<'a>, Error> {
    let Some((peer, conninfo)) = plan.subscribe.iter().find(|(peer, _)| peer.region == *from) else {
        return Err(Error::Plan(format!("{from} is not a peer of {}", plan.me)));
    };
    let way = Way::new(plan, peer, conninfo);
    let publisher = publisher::look(plan, &way).await.map_err(Error::Plan)?;
    let found = mesh::subscribed(client, &way.name).await?;
    let is_lost = publisher.slot.as_ref().is_none_or(|slot| slot.wal_status.as_deref() == Some("lost"));
    if found.as_ref().is_some_and(|found| !is_lost && !found.is_before) {
        let why = format!("the slot of {} at {from} is well: there is nothing to repair", way.name);
        return Err(Error::Plan(why));
    }
    Ok(Lost { way, publisher, found })
}

pub(super) async fn rehearse(client: &Client, plan: &Plan, from: &RegionName) -> Result<Report, Error> {
    let Lost { way, .. } = lost(client, plan, from).await?;
    let step = "would be made anew, and all rows copied again".to_owned();
    Ok(Report::of(way.line(), Status::Pending(step)))
}

pub(super) async fn reseed(client: &Client, plan: &Plan, from: &RegionName) -> Result<Report, Error> {
    let Lost { way, publisher, found } = lost(client, plan, from).await?;
    execute(client, WHAT, "begin").await?;
    if let Some(found) = found {
        // A promoted server may lack rows before the newest heartbeat.
        if !found.is_before {
            mesh::count_on(client, &way.name, &[way.peer]).await?;
        }
        mesh::end(client, &way.name).await?;
    }
    keep(client, &plan.me, way.peer).await?;
    execute(client, WHAT, "commit").await?;
    let status = mesh::create(client, plan, &way, &publisher).await?;
    Ok(Report::of(way.line(), status))
}

/// Turns an origin's rows here into imported rows. Of two rows of one key the later stays.
async fn keep(client: &Client, me: &Origin, peer: &Origin) -> Result<(), Error> {
    let [records, heartbeats] = [names::records(peer), names::heartbeats(peer)];
    let sql = "select quote_ident(attname) from pg_attribute \
               where attrelid = 'onceway.records'::regclass and attnum > 0 and not attisdropped order by attnum";
    let rows = query(client, WHAT, sql, &[]).await?;
    let columns: Vec<String> = rows.iter().map(|row| get(row, WHAT, 0)).collect::<Result<_, _>>()?;
    let taken = columns.iter().map(|column| match column.as_str() {
        "origin" => "r.origin || '!'".to_owned(),
        // The end of an imported row includes its tombstone.
        "due_ms" => statements::kept_until(me),
        other => format!("r.{other}"),
    });
    let taken = taken.collect::<Vec<_>>().join(", ");
    let others = columns.iter().filter(|column| !["tenant", "key", "origin"].contains(&column.as_str()));
    let updated = others.map(|column| format!("{column} = excluded.{column}"));
    let updated = updated.collect::<Vec<_>>().join(", ");
    let into = columns.join(", ");
    let sql = format!(
        "insert into onceway.records_imported as i ({into}) select {taken} from {records} r order by r.tenant, r.key \
         on conflict (tenant, key, origin) do update set {updated} \
         where (i.epoch, i.attempt, i.state) < (excluded.epoch, excluded.attempt, excluded.state); \
         delete from {records}; delete from {heartbeats}"
    );
    execute(client, WHAT, &sql).await
}
