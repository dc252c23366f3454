//! Ties to a region that left the ring: this store's subscription to it, and its slot here.
//!
//! Without this a failover years later would wait for rows of that region, and its slot would keep
//! WAL until the disk is full. The adopted register says who left, never a region's absence from a
//! file. No subscription is dropped before all rows that the region sealed are here, and no row is.

use tokio_postgres::Client;

use super::super::names;
use super::plan::{Error, Plan, Report, Status, execute, get, query};
use super::{mesh, publisher};
use crate::protocol::region::Origin;

const WHAT: &str = "untying a region that left";
const HEARTBEATS: &str = include_str!("../sql/heartbeats.sql");

/// A region that left the ring for good.
struct Left {
    origin: Origin,
    mark: i64,
    votes: bool,
}

/// State of the ties in this store.
struct Here {
    /// True if the first copy of our subscription is whole; `None` without a subscription.
    follows: Option<bool>,
    /// The heartbeat up to which replication brought its rows.
    applied: i64,
    /// The heartbeat up to which its rows are known to be here, even without the subscription.
    kept: i64,
    /// True if the slot of its subscription to us is being read; `None` without a slot.
    slot: Option<bool>,
}

/// Removes the ties to regions that left the ring, as far as that is safe now. Or only reports
/// them, if nothing may change.
pub(super) async fn look(
    client: &Client,
    plan: &Plan,
    report: &mut Report,
    changes: bool,
) -> Result<(), Error> {
    for left in left(client, plan).await? {
        let mut unfollowed = false;
        let status = loop {
            match status(plan, &left, &here(client, plan, &left).await?) {
                Next::Wait(why) => break Status::Pending(why),
                Next::Unfollow | Next::DropSlot if !changes => {
                    let tied = "it is still tied to this store: run `onceway store init`";
                    break Status::Pending(tied.to_owned());
                }
                Next::DropSlot => break drop_slot(client, plan, &left).await?,
                Next::Unfollow if !unfollowed => unfollow(client, plan, &left).await?,
                Next::Done | Next::Unfollow => break Status::changed_if(unfollowed),
            }
            unfollowed = true;
        };
        report.add(format!("rows of {}, which left the ring", left.origin), status);
    }
    Ok(())
}

enum Next {
    Done,
    Wait(String),
    Unfollow,
    DropSlot,
}

fn status(plan: &Plan, left: &Left, here: &Here) -> Next {
    let Left { origin, mark, votes } = left;
    let region = &origin.region;
    if *votes {
        return Next::Wait(format!("{region} still votes: a region that serves changes that within seconds"));
    }
    match here.follows {
        Some(false) => return Next::Wait("its first copy here is not whole".to_owned()),
        // Some store must have the missing rows: that they are lost is for the operator to say.
        _ if here.applied.max(here.kept) < *mark => {
            let applied = here.applied.max(here.kept);
            return Next::Wait(format!(
                "its rows are here up to heartbeat {applied}, it sealed {mark}: leave its Postgres running; if that is gone, `onceway takeover {region}`"
            ));
        }
        Some(true) => return Next::Unfollow,
        None => {}
    }
    match here.slot {
        Some(true) => Next::Wait(format!(
            "all its rows are here; its own Postgres still follows {}: switch it off, then run this again",
            plan.me.region
        )),
        Some(false) => Next::DropSlot,
        None => Next::Done,
    }
}

/// Regions that the adopted view lists and its ring does not. A region that the files name is about
/// to come back, and is left out.
async fn left(client: &Client, plan: &Plan) -> Result<Vec<Left>, Error> {
    let Some(view) = publisher::view(client).await? else { return Ok(Vec::new()) };
    let named = |origin: &Origin| plan.all.iter().any(|named| named.region == origin.region);
    let members = view.members().iter().filter(|(name, _)| view.ring().weight(name).is_none());
    let left = members.map(|(name, member)| Left {
        origin: Origin { region: name.clone(), generation: member.generation },
        mark: i64::try_from(member.mark).unwrap_or(i64::MAX),
        votes: view.voters().contains_key(name),
    });
    Ok(left.filter(|left| left.origin.region != plan.me.region && !named(&left.origin)).collect())
}

async fn here(client: &Client, plan: &Plan, left: &Left) -> Result<Here, Error> {
    let sql = "select exists (select from pg_subscription s where s.subname = $1 \
                          and s.subdbid = (select oid from pg_database where datname = current_database())), \
                      coalesce((select m.imported from onceway.peer_memory m where m.origin = $2), 0), \
                      (select r.active from pg_replication_slots r where r.slot_name = $3)";
    let ours = names::subscription(&plan.me.region, &left.origin.region);
    let theirs = names::subscription(&left.origin.region, &plan.me.region);
    let origin = left.origin.to_string();
    // As gateways read it: a heartbeat counts once the whole copy is here.
    let mut applied = None;
    for row in query(client, WHAT, HEARTBEATS, &[]).await? {
        let (of, seq): (&str, i64) = (get(&row, WHAT, 0)?, get(&row, WHAT, 1)?);
        let copied: Vec<&str> = get(&row, WHAT, 4)?;
        if of == origin && copied.contains(&ours.as_str()) {
            applied = Some(seq);
        }
    }
    let rows = query(client, WHAT, sql, &[&ours, &origin, &theirs]).await?;
    let row = rows.first().ok_or(Error::Sql(WHAT, "no row".to_owned()))?;
    let follows: bool = get(row, WHAT, 0)?;
    Ok(Here {
        follows: follows.then_some(applied.is_some()),
        applied: applied.unwrap_or(0),
        kept: get(row, WHAT, 1)?,
        slot: get(row, WHAT, 2)?,
    })
}

/// Drops the subscription, and notes with it the heartbeat up to which its rows are here. Without
/// the note the region would count as not covered from then on. The slot at the publisher stays:
/// that machine goes, too.
async fn unfollow(client: &Client, plan: &Plan, left: &Left) -> Result<(), Error> {
    let name = names::subscription(&plan.me.region, &left.origin.region);
    execute(client, WHAT, "begin").await?;
    mesh::count_on(client, &name, &[&left.origin]).await?;
    mesh::end(client, &name).await?;
    execute(client, WHAT, "commit").await
}

async fn drop_slot(client: &Client, plan: &Plan, left: &Left) -> Result<Status, Error> {
    let name = names::subscription(&left.origin.region, &plan.me.region);
    // Its Postgres may be back between the look and the drop.
    let sql = "select pg_drop_replication_slot($1)";
    Ok(match query(client, WHAT, sql, &[&name]).await {
        Ok(_) => Status::Changed,
        Err(error) => Status::Pending(error.to_string()),
    })
}
