//! Published columns of the own leaves: those that every subscriber has.
//!
//! A publication without a list of columns publishes each column that is added. A subscriber that
//! lacks it then stops applying rows (`missing replicated column`). So each publication names its
//! columns, and a new one is published once all subscribers have it: they migrate first. This file
//! must not take a column from a list.

use std::collections::BTreeSet;

use tokio_postgres::Client;

use super::super::names;
use super::plan::{Error, Plan, Status, execute, failed, get, query};
use super::publisher;

const WHAT: &str = "choosing what is published";

/// A published table: its own columns, and the published ones.
struct Table {
    name: String,
    /// The table of which it is a leaf. Every store has that table, with the columns of all its
    /// leaves. A peer to which this store is new has no leaf for it yet.
    parent: &'static str,
    own: Vec<String>,
    published: BTreeSet<String>,
    /// True if the publication names the columns. Otherwise it publishes all of them.
    listed: bool,
}

impl Table {
    fn held_back(&self) -> impl Iterator<Item = &String> {
        self.own.iter().filter(|column| !self.published.contains(*column))
    }
}

/// Makes the publication, or publishes the columns that all subscribers have by now. When the
/// publication is first made, a silent peer does not hold a column back: this program will make
/// that peer's store, too. Later a silent peer may be one that has not migrated.
pub(super) async fn publish(client: &Client, plan: &Plan, made: bool) -> Result<Status, Error> {
    let name = names::publication(&plan.me);
    let mut tables = tables(client, plan, &name).await?;
    if made && tables.iter().all(|table| table.listed && table.held_back().next().is_none()) {
        return Ok(Status::Fine);
    }
    let (mut changed, mut why) = (!made, None);
    for table in &mut tables {
        // Columns that were published without a list are in every store already.
        let mut wanted: Vec<String> = table.own.clone();
        for (peer, conninfo) in &plan.subscribe {
            let there = publisher::columns(plan, conninfo, table.parent).await;
            let (lacks, says): (Vec<&String>, &str) = match &there {
                Ok(there) if there.is_empty() => (Vec::new(), "has no store yet"),
                Ok(there) => {
                    (table.held_back().filter(|column| !there.contains(*column)).collect(), "has not")
                }
                Err(_) if made => (table.held_back().collect(), "does not answer, and may not have"),
                Err(_) => (Vec::new(), "does not answer"),
            };
            if let Some(column) = lacks.first() {
                why = Some(format!(
                    "column {column} of {} is not published before all have it, and {peer} {says}: run `onceway store init` of this version there, then here",
                    table.name
                ));
            }
            let lacks: BTreeSet<String> = lacks.into_iter().cloned().collect();
            wanted.retain(|column| !lacks.contains(column));
        }
        changed |= !table.listed || wanted.len() > table.published.len();
        table.own = wanted;
    }
    if changed {
        let list = |table: &Table| {
            let columns: Vec<String> = table.own.iter().map(|column| names::identifier(column)).collect();
            format!("{} ({})", table.name, columns.join(", "))
        };
        let list = tables.iter().map(list).collect::<Vec<_>>().join(", ");
        let sql = if made {
            format!("alter publication {name} set table {list}")
        } else {
            format!("create publication {name} for table {list} with (publish = 'insert, update, delete')")
        };
        execute(client, WHAT, &sql).await?;
    }
    Ok(why.map_or_else(|| Status::changed_if(changed), Status::Pending))
}

/// Reason why a column of the store is not published; `None` if all are.
pub(super) async fn missing(client: &Client, plan: &Plan) -> Result<Option<String>, Error> {
    let tables = tables(client, plan, &names::publication(&plan.me)).await?;
    let held = tables.iter().find_map(|table| {
        let column = table.held_back().next()?;
        Some(format!("column {column} of {} is not published yet: run `onceway store init`", table.name))
    });
    let unlisted = tables.iter().find(|table| !table.listed);
    let unnamed = |Table { name, .. }: &Table| {
        format!("it does not name the columns of {name}: run `onceway store init`")
    };
    Ok(held.or_else(|| unlisted.map(unnamed)))
}

/// A column that a peer publishes and this store lacks: its rows could not be applied.
pub(super) async fn lacking(
    client: &Client,
    peer: &publisher::Publisher,
    publication: &str,
) -> Result<Option<String>, Error> {
    let published = peer.client.query(PUBLISHED, &[&publication]).await;
    for row in published.map_err(|error| failed(WHAT, &error))? {
        let (table, columns): (String, Vec<String>) = (get(&row, WHAT, 0)?, get(&row, WHAT, 1)?);
        let own = own(client, &table).await?;
        if let Some(column) = columns.into_iter().find(|column| !own.contains(column)) {
            return Ok(Some(format!("{column} of {table}")));
        }
    }
    Ok(None)
}

/// Tables of a publication, the columns of each that it publishes, and whether it names them.
const PUBLISHED: &str = "select n.nspname || '.' || c.relname, \
           array(select a.attname::text from pg_attribute a where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped \
                    and (r.prattrs is null or a.attnum = any (r.prattrs)) order by a.attnum), \
           r.prattrs is not null \
      from pg_publication p join pg_publication_rel r on r.prpubid = p.oid join pg_class c on c.oid = r.prrelid \
      join pg_namespace n on n.oid = c.relnamespace where p.pubname = $1";

async fn tables(client: &Client, plan: &Plan, publication: &str) -> Result<Vec<Table>, Error> {
    let found = query(client, WHAT, PUBLISHED, &[&publication]).await?;
    let mut tables = Vec::new();
    let leaves = [names::records(&plan.me), names::heartbeats(&plan.me)];
    for (name, parent) in leaves.into_iter().zip(["onceway.records", "onceway.heartbeats"]) {
        let (mut published, mut listed) = (BTreeSet::new(), false);
        for row in &found {
            if get::<&str>(row, WHAT, 0)? == name {
                published = get::<Vec<String>>(row, WHAT, 1)?.into_iter().collect();
                listed = get(row, WHAT, 2)?;
            }
        }
        tables.push(Table { own: own(client, &name).await?, name, parent, published, listed });
    }
    Ok(tables)
}

async fn own(client: &Client, table: &str) -> Result<Vec<String>, Error> {
    let rows = query(client, WHAT, publisher::COLUMNS, &[&table]).await?;
    rows.iter().map(|row| get(row, WHAT, 0)).collect()
}
