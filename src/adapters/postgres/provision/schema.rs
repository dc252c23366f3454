//! The schema of a store: numbered migrations, the leaves of all origins, the claim routines, the
//! gate.
//!
//! `provision::init` runs it inside one transaction. A store of another deployment, region or
//! generation is left alone, and nothing that holds rows is edited or dropped.

use tokio_postgres::Client;

use super::super::{names, statements};
use super::plan::{Error, Plan, Report, Status, execute, get, holds, query};
use crate::protocol::digest::digest;
use crate::protocol::region::Origin;

/// All migrations of this program, oldest first. The number of a migration is its place. One that
/// was released never changes.
pub const MIGRATIONS: &[&str] = &[include_str!("../sql/0001_schema.sql")];
/// Makes the acceptor. One that is made anew is another acceptor.
pub(super) const ACCEPTOR: &str =
    "insert into onceway.acceptor (id) values (gen_random_uuid()) on conflict do nothing";
/// Version of the schema that gateways of this program need: stores are migrated before them.
pub(in super::super) const SCHEMA: i32 = MIGRATIONS.len() as i32;

/// Makes the missing parts, or only reports them. `false` if rights cannot be looked up, as a part
/// is missing.
pub(super) async fn look(
    client: &Client,
    plan: &Plan,
    report: &mut Report,
    changes: bool,
) -> Result<bool, Error> {
    let applied = applied(client, plan).await?;
    let is_migrated = applied == plan.migrations.len();
    report.add(format!("schema version {}", plan.migrations.len()), status(is_migrated, changes));
    if changes {
        for (_, migration) in migrations(&plan.deployment, plan.migrations).skip(applied) {
            execute(client, "migrating the schema", &migration).await?;
        }
    } else if applied == 0 {
        return Ok(false);
    }
    let mut all_there = true;
    for origin in &plan.all {
        let sql = "select to_regclass($1) is not null and to_regclass($2) is not null";
        let leaves = [names::records(origin), names::heartbeats(origin)];
        let there = holds(client, "looking for leaves", sql, &[&leaves[0], &leaves[1]]).await?;
        if changes && !there {
            execute(client, "making the leaves", &statements::leaves(origin)).await?;
        }
        all_there &= there;
        report.add(format!("leaves of {origin}"), status(there, changes));
    }
    report.add("the gate", status(has_gate(client, &plan.me, changes).await?, changes));
    let acceptor = if changes {
        // One that is made anew is another one, and no voter counts it before it is admitted.
        query(client, "making the acceptor", &format!("{ACCEPTOR} returning 1"), &[]).await?.is_empty()
    } else {
        let sql = "select count(*) = 1 from onceway.acceptor";
        is_migrated && holds(client, "reading the acceptor", sql, &[]).await?
    };
    report.add("the acceptor", status(acceptor, changes));
    let sql = "select routines = $1 from onceway.meta";
    let there = holds(client, "reading the routines' digest", sql, &[&routines_digest(&plan.me)]).await?;
    if changes && !there {
        execute(client, "installing the routines", &install_routines(&plan.me)).await?;
    }
    report.add("claim routines", status(there, changes));
    // Rights on objects that an older schema lacks cannot be looked up.
    Ok(changes || (all_there && is_migrated))
}

/// State of a part that was there, or was missing until it was made, if it may be.
fn status(there: bool, changes: bool) -> Status {
    let missing = || Status::Pending("run `onceway store init`".to_owned());
    if there || changes { Status::changed_if(!there) } else { missing() }
}

/// True if the gate was there. It is made if it may be.
async fn has_gate(client: &Client, me: &Origin, changes: bool) -> Result<bool, Error> {
    if !changes {
        return holds(client, "reading the gate", "select count(*) = 1 from onceway.gate", &[]).await;
    }
    // The heartbeat is made once, with the gate. If it vanished later, that must show as a
    // regression: it must not start again in silence.
    const GATE: &str = "making the gate";
    let [gate, heartbeat] = gate_and_heartbeat(me);
    let made = query(client, GATE, &format!("{gate} on conflict do nothing returning 1"), &[]).await?;
    if !made.is_empty() {
        execute(client, GATE, &heartbeat).await?;
    }
    execute(client, GATE, &own_indexes(me)).await?;
    Ok(made.is_empty())
}

/// Number of applied migrations in the store of the plan. All of them must be this program's.
async fn applied(client: &Client, plan: &Plan) -> Result<usize, Error> {
    const WHAT: &str = "reading the schema's version";
    if !holds(client, WHAT, "select to_regclass('onceway.migrations') is not null", &[]).await? {
        return Ok(0);
    }
    let rows = query(client, WHAT, "select deployment from onceway.meta", &[]).await?;
    let deployment: Option<&str> = rows.first().map(|row| get(row, WHAT, 0)).transpose()?;
    let deployment = deployment.unwrap_or("(none)");
    if rows.is_empty() || deployment != plan.deployment {
        let why = format!("it belongs to deployment {deployment}, not to {}", plan.deployment);
        return Err(Error::Foreign(why));
    }
    let rows = query(client, WHAT, "select origin from onceway.gate", &[]).await?;
    let me = plan.me.to_string();
    for row in &rows {
        let origin: &str = get(row, WHAT, 0)?;
        if origin != me {
            return Err(Error::Foreign(format!("it belongs to {origin}, not to {me}")));
        }
    }
    let rows =
        query(client, WHAT, "select number, digest from onceway.migrations order by number", &[]).await?;
    if rows.len() > plan.migrations.len() {
        return Err(Error::Foreign(format!(
            "its schema has version {}, this program knows {}: use a newer onceway",
            rows.len(),
            plan.migrations.len()
        )));
    }
    for (at, (row, ours)) in rows.iter().zip(plan.migrations).enumerate() {
        let (number, theirs): (i32, &str) = (get(row, WHAT, 0)?, get(row, WHAT, 1)?);
        if number != number_of(at) || theirs != text_digest(ours) {
            return Err(Error::Foreign(format!(
                "its migration {number} is not the one of this program: use the onceway that made it"
            )));
        }
    }
    Ok(rows.len())
}

/// Each migration with its number, as a statement to run once.
pub(super) fn migrations(
    deployment: &str,
    all: &'static [&'static str],
) -> impl Iterator<Item = (i32, String)> {
    let deployment = names::literal(deployment);
    all.iter().enumerate().map(move |(at, migration)| {
        let (number, digest) = (number_of(at), names::literal(&text_digest(migration)));
        let sql = format!(
            "{migration}\ninsert into onceway.migrations (number, digest) values ({number}, {digest});\n\
             insert into onceway.meta (schema_version, deployment) values ({number}, {deployment}) \
             on conflict (one) do update set schema_version = excluded.schema_version;\n"
        );
        (number, sql)
    })
}

/// The first rows of the gate and the heartbeat, which are made together.
pub(super) fn gate_and_heartbeat(me: &Origin) -> [String; 2] {
    let (origin, heartbeats) = (names::literal(&me.to_string()), names::heartbeats(me));
    [
        format!("insert into onceway.gate (origin, version, epoch) values ({origin}, 1, 1)"),
        format!(
            "insert into {heartbeats} (origin, seq, epoch, beat_at) values ({origin}, 0, 1, clock_timestamp())"
        ),
    ]
}

pub(super) fn own_indexes(me: &Origin) -> String {
    let (records, due, held) = (names::records(me), names::index(me, "due"), names::index(me, "held"));
    format!(
        "create index if not exists {due} on {records} (due_ms);\n\
         create index if not exists {held} on {records} (held_ms);\n"
    )
}

/// Installs the claim routines, and notes their digest.
pub(super) fn install_routines(me: &Origin) -> String {
    let digest = names::literal(&routines_digest(me));
    format!("{}\nupdate onceway.meta set routines = {digest};\n", statements::routines(me))
}

pub(super) fn routines_digest(me: &Origin) -> String {
    text_digest(&statements::routines(me))
}

fn text_digest(text: &str) -> String {
    digest("onceway/store/sql/1", &[text.as_bytes()]).to_string()
}

fn number_of(at: usize) -> i32 {
    i32::try_from(at).map_or(i32::MAX, |at| at.saturating_add(1))
}
