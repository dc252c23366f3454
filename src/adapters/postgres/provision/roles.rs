//! The two roles of a store and their rights.
//!
//! The gateway reads everything and writes only its own leaves; replication reads only the own
//! leaves. A missing right is granted. A right too many is reported and never revoked: a person
//! gave it. An existing role keeps its password.

use postgres_protocol::password::scram_sha_256;
use tokio_postgres::Client;

use super::super::{names, statements};
use super::plan::{Error, Plan, Report, Role, Status, execute, get, holds, query};
use crate::protocol::region::Origin;

const WHAT: &str = "setting up the roles";

/// Settings of the gateway's role. A claim waits for a synchronous standby, if there is one. Plans
/// made on empty leaves must not become table scans.
pub(super) const SETTINGS: [(&str, &str); 7] = [
    ("synchronous_commit", "on"),
    ("default_transaction_isolation", "read committed"),
    ("enable_seqscan", "off"),
    ("enable_hashjoin", "off"),
    ("enable_mergejoin", "off"),
    ("jit", "off"),
    ("search_path", "onceway"),
];

/// Role whose members may replicate on Amazon's servers, where nobody can set the attribute.
/// Membership is all that can be seen from here. A peer's `store init` makes its slot as that role,
/// and reports it if the role may not.
pub(super) const SERVICE_ROLE: &str = "rds_replication";

pub(super) struct Right {
    /// `schema`, `table` or `function`.
    pub(super) kind: &'static str,
    pub(super) object: String,
    pub(super) privilege: &'static str,
}

/// Creates missing roles, sets the gateway's settings, grants missing rights. Or only reports what
/// is missing. Reports rights too many.
pub(super) async fn look(
    client: &Client,
    plan: &Plan,
    report: &mut Report,
    changes: bool,
) -> Result<(), Error> {
    let gateway = (&plan.gateway_role, gateway_rights(&plan.me, &plan.all), &SETTINGS[..]);
    let replication = plan.replication_role.iter().map(|role| (role, replication_rights(&plan.me), &[][..]));
    for (role, rights, settings) in std::iter::once(gateway).chain(replication) {
        let (line, name) = (format!("role {}", role.name), &role.name);
        let there = holds(client, WHAT, "select true from pg_roles where rolname = $1", &[name]).await?;
        if !there && !changes {
            report.add(line, Status::Pending("it is missing: run `onceway store init`".to_owned()));
            continue;
        }
        if !there {
            create(client, plan, role).await?;
        }
        let set = set_for(client, name).await?;
        let unset = settings.iter().filter(|(setting, value)| !set.contains(&format!("{setting}={value}")));
        let unset: Vec<_> = unset.collect();
        let missing = missing(client, name, &rights).await?;
        let is_fit = unset.is_empty() && missing.is_empty();
        if !is_fit && !changes {
            let missing = missing.iter().map(|right| format!("{} on {}", right.privilege, right.object));
            let unset = unset.iter().map(|(setting, value)| format!("{setting}={value}"));
            let lacks = missing.chain(unset).collect::<Vec<_>>().join(", ");
            report.add(line, Status::Pending(format!("it lacks {lacks}: run `onceway store init`")));
            continue;
        }
        for (setting, value) in unset {
            let database = names::identifier(&database(client).await?);
            let value = names::literal(value);
            let sql = format!("alter role {name} in database {database} set {setting} = {value}");
            execute(client, WHAT, &sql).await?;
        }
        for Right { kind, object, privilege } in missing {
            execute(client, WHAT, &format!("grant {privilege} on {kind} {object} to {name}")).await?;
        }
        let excess = excess(client, plan, role).await?;
        report.add(line, excess.map_or_else(|| Status::changed_if(!there || !is_fit), Status::Broken));
    }
    Ok(())
}

/// A right that a role has and must not have, or lacks and must have.
async fn excess(client: &Client, plan: &Plan, role: &Role) -> Result<Option<String>, Error> {
    let sql = "select r.rolsuper, r.rolcanlogin, r.rolcreaterole, r.rolreplication or exists \
               (select from pg_roles s where s.rolname = $2 and pg_has_role(r.oid, s.oid, 'usage')) \
               from pg_roles r where r.rolname = $1";
    let rows = query(client, WHAT, sql, &[&role.name, &SERVICE_ROLE]).await?;
    let Some(row) = rows.first() else { return Ok(Some("it vanished meanwhile".to_owned())) };
    let (superuser, login): (bool, bool) = (get(row, WHAT, 0)?, get(row, WHAT, 1)?);
    let (creates_roles, replicates): (bool, bool) = (get(row, WHAT, 2)?, get(row, WHAT, 3)?);
    let is_replication = plan.replication_role.as_ref().is_some_and(|other| other.name == role.name);
    // Where there is one region the gateway's role may have made the store: no leaf is another's.
    let is_owner = plan.replication_role.is_none()
        && holds(client, WHAT, "select $1 = current_user", &[&role.name]).await?;
    if is_owner {
        return Ok(None);
    }
    let wrong = if superuser {
        "it is a superuser and could write every leaf: use a role of its own"
    } else if creates_roles {
        "it may make roles, and so give itself any right: `alter role` it NOCREATEROLE"
    } else if !login {
        "it lacks LOGIN: `alter role` it"
    } else if replicates && !is_replication {
        "it may replicate, and so read all WAL: take REPLICATION from it"
    } else {
        ""
    };
    if !wrong.is_empty() {
        return Ok(Some(wrong.to_owned()));
    }
    if is_replication && !replicates {
        let name = &role.name;
        return Ok(Some(match replicates_by_membership(client).await? {
            true => format!("it may not replicate: `grant {SERVICE_ROLE} to {name}`"),
            false => format!("it may not replicate: `alter role {name} replication`"),
        }));
    }
    let others = plan.all.iter().filter(|origin| **origin != plan.me || is_replication);
    let leaves = others.flat_map(|origin| [names::records(origin), names::heartbeats(origin)]);
    // Access through the table above the leaves is judged by that table's rights alone.
    let above = ["onceway.records", "onceway.heartbeats"].map(str::to_owned);
    for table in leaves.chain(above) {
        // A right to columns alone is a right to write, too.
        let sql = "select has_table_privilege($1, $2, 'delete, truncate') or has_any_column_privilege($1, $2, 'insert, update')";
        if holds(client, WHAT, sql, &[&role.name, &table]).await? {
            return Ok(Some(format!("it may write {table}, which is not its to write: revoke that")));
        }
    }
    Ok(None)
}

/// True for a service where a membership stands for the attribute, which nobody can set there.
async fn replicates_by_membership(client: &Client) -> Result<bool, Error> {
    let superuser =
        holds(client, WHAT, "select rolsuper from pg_roles where rolname = current_user", &[]).await?;
    let known = holds(client, WHAT, "select true from pg_roles where rolname = $1", &[&SERVICE_ROLE]).await?;
    Ok(known && !superuser)
}

async fn create(client: &Client, plan: &Plan, role: &Role) -> Result<(), Error> {
    let replicates = role.name != plan.gateway_role.name;
    let service = replicates && replicates_by_membership(client).await?;
    let attributes = if replicates && !service { "login replication" } else { "login" };
    execute(client, WHAT, &creation(role, attributes)).await?;
    if service {
        execute(client, WHAT, &format!("grant {SERVICE_ROLE} to {}", role.name)).await?;
    }
    Ok(())
}

/// The statement that creates a role: it is logged, so it has only the SCRAM verifier (RFC 5803).
fn creation(role: &Role, attributes: &str) -> String {
    let verifier = |text: &String| names::literal(&scram_sha_256(text.as_bytes()));
    let password = role.password.as_ref().map(verifier).map(|text| format!(" password {text}"));
    format!("create role {} {attributes}{}", role.name, password.unwrap_or_default())
}

async fn missing<'a>(client: &Client, role: &str, rights: &'a [Right]) -> Result<Vec<&'a Right>, Error> {
    let mut missing = Vec::new();
    for right in rights {
        let sql = format!("select has_{}_privilege($1, $2, $3)", right.kind);
        if !holds(client, WHAT, &sql, &[&role, &right.object, &right.privilege]).await? {
            missing.push(right);
        }
    }
    Ok(missing)
}

async fn set_for(client: &Client, role: &str) -> Result<Vec<String>, Error> {
    let sql = "select s.setconfig from pg_db_role_setting s join pg_roles r on r.oid = s.setrole \
               join pg_database d on d.oid = s.setdatabase where r.rolname = $1 and d.datname = current_database()";
    match query(client, WHAT, sql, &[&role]).await?.first() {
        Some(row) => get(row, WHAT, 0),
        None => Ok(Vec::new()),
    }
}

async fn database(client: &Client) -> Result<String, Error> {
    let rows = query(client, WHAT, "select current_database()::text", &[]).await?;
    rows.first().map_or_else(|| Ok(String::new()), |row| get(row, WHAT, 0))
}

pub(super) fn gateway_rights(me: &Origin, all: &[Origin]) -> Vec<Right> {
    const READ: &[&str] = &["select"];
    const CHANGE: &[&str] = &["select", "update"];
    const WRITE: &[&str] = &["select", "insert", "update", "delete"];
    // Append only: entries and chosen views stay.
    const APPEND: &[&str] = &["select", "insert"];
    let shared = [
        ("records", READ),
        ("heartbeats", READ),
        ("meta", READ),
        ("gate", CHANGE),
        ("acceptor", CHANGE),
        ("forgotten", CHANGE),
        ("views", APPEND),
        ("peer_memory", WRITE),
        ("doubts", WRITE),
        ("jobs", WRITE),
        ("escrows", WRITE),
        ("records_imported", WRITE),
        ("journal", APPEND),
    ];
    let shared = shared.map(|(object, privileges)| (format!("onceway.{object}"), privileges));
    let leaves = all.iter().flat_map(|origin| {
        let own = if origin == me { WRITE } else { READ };
        [(names::records(origin), own), (names::heartbeats(origin), own)]
    });
    let tables = shared.into_iter().chain(leaves).flat_map(|(object, privileges)| {
        privileges.iter().map(move |privilege| Right { kind: "table", object: object.clone(), privilege })
    });
    let others =
        ["onceway.hold_gate(bigint)", "pg_control_system()", "pg_control_checkpoint()"].map(str::to_owned);
    let functions = statements::routine_signatures().into_iter().chain(others);
    let functions = functions.map(|object| Right { kind: "function", object, privilege: "execute" });
    std::iter::once(usage()).chain(tables).chain(functions).collect()
}

pub(super) fn replication_rights(me: &Origin) -> Vec<Right> {
    let tables = [names::records(me), names::heartbeats(me), "onceway.meta".to_owned()];
    let tables = tables.map(|object| Right { kind: "table", object, privilege: "select" });
    std::iter::once(usage()).chain(tables).collect()
}

fn usage() -> Right {
    Right { kind: "schema", object: "onceway".to_owned(), privilege: "usage" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_in_no_statement() {
        let role =
            |password: Option<&str>| Role { name: "gateway".into(), password: password.map(Into::into) };
        let created = creation(&role(Some("p'ss")), "login");
        assert!(created.starts_with("create role gateway login password 'SCRAM-SHA-256$4096:"), "{created}");
        assert!(!created.contains("p'ss") && !created.contains("p''ss"), "{created}");
        assert_eq!(creation(&role(None), "login"), "create role gateway login");
    }
}
