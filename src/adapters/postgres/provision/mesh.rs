//! Replication between stores: the publication of the own leaves, one subscription per peer, and
//! its repair (`onceway store reseed`).
//!
//! The rule (docs/protocol.md#rule-29): a slot that is missing under an existing subscription is
//! never made again, since rows would be missing in silence. `publisher` looks at a peer.

use tokio_postgres::Client;

use super::super::{names, statements};
use super::columns;
use super::plan::{Error, Plan, Report, Status, execute, failed, get, holds, query};
use super::publisher::{self, Publisher, Slot, Way};
use crate::protocol::region::{Origin, RegionName};

/// The comment of a subscription: the timeline that the server writes, in SQL. On a later one the
/// server was promoted, and may lack rows that its peers do not send again.
pub(super) const TIMELINE: &str = "'timeline ' || left(pg_walfile_name(pg_current_wal_lsn()), 8)";
const PUBLISHING: &str = "making the publication";
const SUBSCRIBING: &str = "making a subscription";
const KEEPING: &str = "keeping the rows of a peer";
const RESEED: &str = "rows are missing here and no repair in place is safe: this region is not covered for that origin; \
    run `onceway store reseed`";

/// Makes the publication. Or only reports whether it publishes both own leaves, all their changes,
/// and nothing else.
pub(super) async fn publish(client: &Client, plan: &Plan, changes: bool) -> Result<Status, Error> {
    Ok(match publication(client, plan).await? {
        Some(status @ (Status::Changed | Status::Pending(_) | Status::Broken(_))) => status,
        made if changes => columns::publish(client, plan, made.is_some()).await?,
        None => Status::Pending("it is missing: run `onceway store init`".to_owned()),
        Some(Status::Fine) => columns::missing(client, plan).await?.map_or(Status::Fine, Status::Pending),
    })
}

/// State of the publication, without its columns; `None` if it is missing.
async fn publication(client: &Client, plan: &Plan) -> Result<Option<Status>, Error> {
    let name = names::publication(&plan.me);
    let published = publisher::published(client, &name).await.map_err(|error| failed(PUBLISHING, &error))?;
    let Some(tables) = published else { return Ok(None) };
    if tables != publisher::leaves(&plan.me) {
        let why = format!("it publishes {}: it must be the own two leaves", tables.join(", "));
        return Ok(Some(Status::Broken(why)));
    }
    let sql = "select pubinsert and pubupdate and pubdelete and not pubtruncate and not pubviaroot \
               from pg_publication where pubname = $1";
    Ok(Some(match holds(client, PUBLISHING, sql, &[&name]).await? {
        true => Status::Fine,
        false => {
            Status::Broken("it must publish insert, update and delete: `alter publication` it".to_owned())
        }
    }))
}

struct Subscribed {
    conninfo: String,
    enabled: bool,
    publications: Vec<String>,
    slot: Option<String>,
    tables: i64,
    copied: i64,
    streaming: bool,
    /// True if it has the comment [`TIMELINE`], of any timeline.
    is_dated: bool,
    /// True if it was made before this server was promoted.
    is_before: bool,
}

impl Subscribed {
    /// True if it follows an earlier store of that region.
    fn follows_before(&self, peer: &Origin) -> bool {
        let prefix = names::publication_prefix(&peer.region);
        let [publication] = self.publications.as_slice() else { return false };
        let generation = publication.strip_prefix(&prefix).and_then(|number| number.parse::<u32>().ok());
        generation.is_some_and(|generation| generation < peer.generation)
    }
}

/// Ends a subscription whose slot is gone or unused. Its rows stay.
pub(super) async fn end(client: &Client, name: &str) -> Result<(), Error> {
    let sql = format!(
        "alter subscription {name} disable; alter subscription {name} set (slot_name = none); drop subscription {name}"
    );
    execute(client, "ending a subscription", &sql).await
}

/// Notes the heartbeat up to which a subscription brought the rows of these origins, if its first
/// copy was whole. It runs in the transaction that ends the subscription
/// (docs/protocol.md#rule-29). From then on the heartbeats of these origins do not count, while
/// their rows stay. Without the note the rows would count as missing.
pub(super) async fn count_on(client: &Client, name: &str, origins: &[&Origin]) -> Result<(), Error> {
    let origins: Vec<String> = origins.iter().map(ToString::to_string).collect();
    let sql = "insert into onceway.peer_memory as m (origin, applied, imported, remembered_at) \
               select h.origin, h.seq, h.seq, clock_timestamp() from onceway.heartbeats h \
                where h.origin = any($1) \
                  and (select count(*) = 2 and bool_and(k.srsubstate = 'r') \
                         from pg_subscription s join pg_subscription_rel k on k.srsubid = s.oid \
                        where s.subname = $2 \
                          and s.subdbid = (select oid from pg_database where datname = current_database())) \
                order by h.origin \
               on conflict (origin) do update set applied = greatest(m.applied, excluded.applied), \
                      imported = greatest(m.imported, excluded.imported), remembered_at = excluded.remembered_at";
    query(client, "remembering what a subscription brought", sql, &[&origins, &name]).await.map(drop)
}

/// Stops following a store that was replaced. If its first copy never became whole, its heartbeat
/// is removed, so that it counts for nothing (docs/protocol.md#rule-29).
async fn leave(client: &Client, name: &str, found: &Subscribed, peer: &Origin) -> Result<(), Error> {
    let before = (1..peer.generation).map(|generation| Origin { region: peer.region.clone(), generation });
    let before: Vec<Origin> = before.collect();
    execute(client, SUBSCRIBING, "begin").await?;
    count_on(client, name, &before.iter().collect::<Vec<_>>()).await?;
    if found.copied != 2 {
        for origin in &before {
            let heartbeats = names::heartbeats(origin);
            let sql = "select to_regclass($1) is not null";
            if holds(client, SUBSCRIBING, sql, &[&heartbeats]).await? {
                execute(client, SUBSCRIBING, &format!("delete from {heartbeats}")).await?;
            }
        }
    }
    end(client, name).await?;
    execute(client, SUBSCRIBING, "commit").await
}

/// Makes the subscription once the peer is ready. Checks an existing one, and sets its address. Or
/// only reports it.
pub(super) async fn subscription(
    client: &Client,
    plan: &Plan,
    way: &Way<'_>,
    changes: bool,
) -> Result<Status, Error> {
    let Way { peer, conninfo, name } = way;
    let found = subscribed(client, name).await?;
    if found.is_none() && !changes {
        return Ok(Status::Pending("it is missing: run `onceway store init`".to_owned()));
    }
    match (found, publisher::look(plan, way).await) {
        (None, Err(why)) => Ok(Status::Pending(why)),
        (None, Ok(publisher)) => create(client, plan, way, &publisher).await,
        // By the view that store is retired, and its replacement exists.
        (Some(found), Ok(publisher)) if changes && found.follows_before(peer) => {
            leave(client, name, &found, peer).await?;
            create(client, plan, way, &publisher).await
        }
        (Some(found), publisher) => {
            if changes && !found.is_dated {
                date(client, name).await?;
            }
            let status = standing(peer, &found, publisher.map(|publisher| publisher.slot));
            let stays = if changes { matches!(status, Status::Broken(_)) } else { status != Status::Fine };
            if stays || found.conninfo == *conninfo {
                return Ok(status);
            }
            if !changes {
                return Ok(Status::Pending("it uses another address: run `onceway store init`".to_owned()));
            }
            let sql = format!("alter subscription {name} connection {}", names::literal(conninfo));
            execute(client, SUBSCRIBING, &sql).await?;
            Ok(Status::Changed)
        }
    }
}

/// Notes the timeline on which a subscription has every row.
async fn date(client: &Client, name: &str) -> Result<(), Error> {
    let sql = format!("select {TIMELINE}");
    for row in &query(client, SUBSCRIBING, &sql, &[]).await? {
        let timeline: String = get(row, SUBSCRIBING, 0)?;
        let sql = format!("comment on subscription {name} is {}", names::literal(&timeline));
        execute(client, SUBSCRIBING, &sql).await?;
    }
    Ok(())
}

async fn create(
    client: &Client,
    plan: &Plan,
    Way { peer, conninfo, name }: &Way<'_>,
    publisher: &Publisher,
) -> Result<Status, Error> {
    let [records, heartbeats] = [names::records(peer), names::heartbeats(peer)];
    let empty =
        format!("select not exists (select from {records}) and not exists (select from {heartbeats})");
    if !holds(client, SUBSCRIBING, &empty, &[]).await? {
        // Copying into them would stop at the first row that exists already.
        return Ok(Status::Broken(format!(
            "there are rows of an earlier subscription in {records} or {heartbeats}; {RESEED}"
        )));
    }
    if let Some(column) = columns::lacking(client, publisher, &names::publication(peer)).await? {
        return Ok(Status::Pending(format!(
            "{peer} publishes column {column}, which this store lacks: run `onceway store init` of its version here"
        )));
    }
    if publisher.slot.as_ref().is_some_and(|slot| slot.active) {
        return Ok(Status::Pending(format!("slot {name} at {} is in use", peer.region)));
    }
    // Left by an attempt that broke off: no subscription has a position in it.
    let left = publisher.slot.as_ref().map(|_| "select pg_drop_replication_slot($1)");
    // The slot first, from outside. `create subscription` would make it inside its own transaction,
    // and making a slot waits for every transaction at the publisher. Two regions that subscribe to
    // each other at the same time would wait in a circle for ever.
    let make = "select pg_create_logical_replication_slot($1, 'pgoutput')";
    for sql in left.into_iter().chain([make]) {
        if let Err(error) = publisher.client.query(sql, &[name]).await {
            return Ok(Status::Pending(failed(SUBSCRIBING, &error).to_string()));
        }
    }
    let sql = format!(
        "create subscription {name} connection {} publication {} with (create_slot = false, slot_name = {name}, copy_data = true, synchronous_commit = off)",
        names::literal(conninfo),
        names::publication(peer)
    );
    Ok(match client.batch_execute(&sql).await {
        // Pending: a caller that waits for a complete report waits for the copy.
        Ok(()) => {
            date(client, name).await?;
            Status::Pending("made now, the initial copy runs".to_owned())
        }
        // The publisher may be gone, or its role lacks a right: repeating `init` settles both.
        Err(error) => Status::Pending(format!("{} (plan of {})", failed(SUBSCRIBING, &error), plan.me)),
    })
}

/// State of an existing subscription. `slot` is its slot as the publisher reports it.
fn standing(peer: &Origin, found: &Subscribed, slot: Result<Option<Slot>, String>) -> Status {
    let publication = names::publication(peer);
    if found.follows_before(peer) {
        let why = slot.err().unwrap_or_else(|| "its store was replaced: run `onceway store init`".to_owned());
        return Status::Pending(why);
    }
    let unrepaired = if found.publications != [publication.as_str()] {
        Some(format!("it follows {}, not {publication}", found.publications.join(", ")))
    } else if found.slot.is_none() {
        Some("it has no slot".to_owned())
    } else if found.is_before {
        Some("this server was promoted since it was made".to_owned())
    } else {
        match slot {
            Err(why) => return Status::Pending(why),
            Ok(None) => Some(format!("its slot at {} is missing", peer.region)),
            Ok(Some(slot)) if slot.wal_status.as_deref() == Some("lost") => {
                Some(format!("its slot at {} was lost", peer.region))
            }
            Ok(Some(_)) => None,
        }
    };
    if let Some(why) = unrepaired {
        return Status::Broken(format!("{why}; {RESEED}"));
    }
    if !found.enabled {
        return Status::Broken("it is disabled: `alter subscription ... enable` it".to_owned());
    }
    if found.tables != 2 || found.copied != found.tables {
        return Status::Pending(format!("the initial copy runs ({} of 2 tables done)", found.copied));
    }
    if !found.streaming {
        return Status::Pending(
            "no worker is running: it is starting, or look into the log of Postgres".to_owned(),
        );
    }
    Status::Fine
}

async fn subscribed(client: &Client, name: &str) -> Result<Option<Subscribed>, Error> {
    const WHAT: &str = "reading a subscription";
    let sql = &format!(
        "select s.subconninfo, s.subenabled, s.subpublications, s.subslotname::text, count(k.srrelid), \
                      count(k.srrelid) filter (where k.srsubstate = 'r'), \
                      exists (select from pg_stat_subscription w where w.subid = s.oid and w.relid is null and w.pid is not null), \
                      obj_description(s.oid, 'pg_subscription') is not null, \
                      coalesce(obj_description(s.oid, 'pg_subscription') <> {TIMELINE}, false) \
               from pg_subscription s left join pg_subscription_rel k on k.srsubid = s.oid \
               where s.subname = $1 and s.subdbid = (select oid from pg_database where datname = current_database()) \
               group by s.oid"
    );
    let rows = query(client, WHAT, sql, &[&name]).await?;
    let Some(row) = rows.first() else { return Ok(None) };
    Ok(Some(Subscribed {
        conninfo: get(row, WHAT, 0)?,
        enabled: get(row, WHAT, 1)?,
        publications: get(row, WHAT, 2)?,
        slot: get(row, WHAT, 3)?,
        tables: get(row, WHAT, 4)?,
        copied: get(row, WHAT, 5)?,
        streaming: get(row, WHAT, 6)?,
        is_dated: get(row, WHAT, 7)?,
        is_before: get(row, WHAT, 8)?,
    }))
}

/// Follows a peer anew whose slot was lost, or whose rows a promoted server may lack. Or only
/// reports that it would.
///
/// This store may hold the only rows of a key that this region owns by now, so the peer's rows stay
/// readable. In one transaction they become imported rows, like those that survivors give one
/// another, known to be whole up to the present heartbeat. Their leaf is emptied by DELETE: after
/// TRUNCATE, a claim that began earlier would see neither the old rows nor the imported ones. Then
/// the leaf is copied whole. A subscription that is intact is left alone.
pub(super) async fn reseed(
    client: &Client,
    plan: &Plan,
    from: &RegionName,
    changes: bool,
) -> Result<Report, Error> {
    let Some((peer, conninfo)) = plan.subscribe.iter().find(|(peer, _)| peer.region == *from) else {
        return Err(Error::Plan(format!("{from} is not a peer of {}", plan.me)));
    };
    let way = Way::new(plan, peer, conninfo);
    let publisher = publisher::look(plan, &way).await.map_err(Error::Plan)?;
    let found = subscribed(client, &way.name).await?;
    let is_lost = publisher.slot.as_ref().is_none_or(|slot| slot.wal_status.as_deref() == Some("lost"));
    if found.as_ref().is_some_and(|found| !is_lost && !found.is_before) {
        let why = format!("the slot of {} at {from} is well: there is nothing to repair", way.name);
        return Err(Error::Plan(why));
    }
    if !changes {
        let step = "would be made anew, and all rows copied again".to_owned();
        return Ok(Report::of(way.line(), Status::Pending(step)));
    }
    execute(client, KEEPING, "begin").await?;
    if let Some(found) = found {
        // A promoted server may lack rows before the newest heartbeat.
        if !found.is_before {
            count_on(client, &way.name, &[way.peer]).await?;
        }
        end(client, &way.name).await?;
    }
    keep(client, &plan.me, way.peer).await?;
    execute(client, KEEPING, "commit").await?;
    let status = create(client, plan, &way, &publisher).await?;
    Ok(Report::of(way.line(), status))
}

/// Turns an origin's rows here into imported rows. Of two rows of one key the later stays.
async fn keep(client: &Client, me: &Origin, peer: &Origin) -> Result<(), Error> {
    let [records, heartbeats] = [names::records(peer), names::heartbeats(peer)];
    let sql = "select quote_ident(attname) from pg_attribute \
               where attrelid = 'onceway.records'::regclass and attnum > 0 and not attisdropped order by attnum";
    let rows = query(client, KEEPING, sql, &[]).await?;
    let columns: Vec<String> = rows.iter().map(|row| get(row, KEEPING, 0)).collect::<Result<_, _>>()?;
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
    execute(client, KEEPING, &sql).await
}
