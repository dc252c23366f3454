//! The SQL of a region's store as a script for psql: `onceway store init --print`.
//!
//! It is made of the texts that `init` runs, each behind a check whether it is needed. It asks no
//! server, so it knows other regions' stores only from the files. It must not hold a secret: psql
//! reads them from the places that the region file names. Of a role's password it reads the SCRAM
//! verifier only ([`verifiers`]), as servers log statements.

use std::fmt::Write as _;
use std::path::PathBuf;

use postgres_protocol::password::scram_sha_256;

use super::super::{names, statements};
use super::roles::{Right, SERVICE_ROLE, SETTINGS};
use super::{mesh, publisher, roles, schema};
use crate::protocol::region::Origin;

const GATEWAY_VERIFIER: &str = "gateway_verifier";
const REPLICATION_VERIFIER: &str = "replication_verifier";

/// Place from which psql reads a text.
#[derive(Clone, Debug)]
pub enum Whence {
    /// An environment variable.
    Variable(String),
    /// A file.
    File(PathBuf),
    /// The script itself: the text is no secret.
    Written(String),
}

/// Required state of a region's store, without the secrets.
#[derive(Clone, Debug)]
pub struct Script {
    /// The region, and the generation of its store.
    pub me: Origin,
    /// All origins of the deployment, `me` included.
    pub all: Vec<Origin>,
    /// The deployment's id.
    pub deployment: String,
    /// The gateways' role; true if it has a password.
    pub gateway_role: (String, bool),
    /// The peers' role; true if it has a password.
    pub replication_role: (String, bool),
    /// For each peer, the connection string by which the region's Postgres reaches the peer's.
    pub subscribe: Vec<(Origin, Whence)>,
}

/// The psql variables of a script, for roles that are made with these passwords: their SCRAM
/// verifiers (RFC 5803), with a new salt each time.
pub fn verifiers(gateway: Option<&str>, replication: Option<&str>) -> String {
    let line = |(name, password): (&str, Option<&str>)| {
        password
            .map(|password| format!("\\set {name} {}\n", psql_literal(&scram_sha_256(password.as_bytes()))))
    };
    [(GATEWAY_VERIFIER, gateway), (REPLICATION_VERIFIER, replication)].into_iter().filter_map(line).collect()
}

/// Writes the script.
pub fn script(plan: &Script) -> String {
    let mut out = opening(plan);
    of_roles(plan, &mut out);
    of_schema(plan, &mut out);
    of_rights(plan, &mut out);
    out.push_str("commit;\n");
    of_subscriptions(plan, &mut out);
    out
}

fn opening(plan: &Script) -> String {
    let me = &plan.me;
    let mut out = format!(
        r"-- The store of {me} in deployment {deployment}, as `onceway store init --print` made it from the region file. Nothing was asked of any server.
-- Run it with psql 15 or newer in the region's database, as the role of [provision] admin_url: that role owns what is made here.
--   psql --no-psqlrc --set ON_ERROR_STOP=1 --file THIS
-- First so in every region. Then again, in one region after the other, for the subscriptions:
--   psql --no-psqlrc --set ON_ERROR_STOP=1 --set subscriptions=1 --file THIS
-- Then `onceway store check` has the last word. What is there already is left as it is; run both as often as you like.
-- Rights: CREATE on the database; where a role below is missing, CREATEROLE; for subscriptions membership of pg_create_subscription (Postgres 16 and
-- newer) or of the service's own administrator role; on a server of your own with 15, superuser.
-- Connection strings are read where the region file has them, when this runs.
",
        deployment = comment(&plan.deployment),
    );
    if plan.gateway_role.1 || plan.replication_role.1 {
        out.push_str(
            "-- No statement of this has a password in it. A role that is missing is made with a SCRAM verifier, from a variable that is set by what\n\
             --   onceway store init --config FILE --verifiers >VERIFIERS\n\
             -- writes, where the passwords are; then run each of the two as psql ... --file VERIFIERS --file THIS\n",
        );
    }
    out.push_str("\nbegin;\n");
    out
}

/// Sets a psql variable from the place of its text.
fn set(name: &str, whence: &Whence) -> String {
    match whence {
        Whence::Variable(variable) => format!("\\getenv {name} {variable}\n"),
        // Within backquotes psql quotes its own variables for the shell.
        Whence::File(path) => {
            let path = path.display().to_string();
            format!("\\set {name}_file {}\n\\set {name} `cat :'{name}_file'`\n", psql_literal(&path))
        }
        Whence::Written(text) => format!("\\set {name} {}\n", psql_literal(text)),
    }
}

/// A quoted word of a psql command.
fn psql_literal(text: &str) -> String {
    format!("'{}'", text.replace('\\', "\\\\").replace('\'', "\\'").replace('\n', "\\n"))
}

/// One line of text in a comment.
fn comment(text: &str) -> String {
    text.replace(['\n', '\r'], " ")
}

/// Writes `body` so that it runs only if the answer to `question` is true.
fn write_if(out: &mut String, question: &str, body: &str) {
    let _ = write!(out, "select {question} as wanted \\gset\n\\if :wanted\n{}\n\\endif\n", body.trim_end());
}

fn of_roles(plan: &Script, out: &mut String) {
    let known =
        |role: &str| format!("exists (select from pg_roles where rolname = {})", names::literal(role));
    let (gateway, secret) = &plan.gateway_role;
    out.push_str("\n-- The gateways' role, and how its statements are planned.\n");
    let create = |password: &str| format!("create role {gateway} login{password};");
    let create = with_verifier(*secret, GATEWAY_VERIFIER, create);
    write_if(out, &format!("not {}", known(gateway)), &create);
    for (name, value) in SETTINGS {
        let set = names::literal(&format!("{name}={value}"));
        let _ = writeln!(
            out,
            "select format('alter role {gateway} in database %I set {name} = %L', current_database(), {})\n \
             where not exists (select from pg_db_role_setting s join pg_database d on d.oid = s.setdatabase\n  \
             where s.setrole = '{gateway}'::regrole and d.datname = current_database() and {set} = any(s.setconfig)) \\gexec",
            names::literal(value),
        );
    }
    let (replication, secret) = &plan.replication_role;
    out.push_str("\n-- The other regions' Postgres come as this one. Some services have a role to be in, in place of the attribute.\n");
    let _ = writeln!(
        out,
        "select {} and not rolsuper as by_membership from pg_roles where rolname = current_user \\gset",
        known(SERVICE_ROLE)
    );
    let create = |password: &str| {
        format!(
            "\\if :by_membership\ncreate role {replication} login{password};\ngrant {SERVICE_ROLE} to {replication};\n\\else\n\
             create role {replication} login replication{password};\n\\endif"
        )
    };
    let create = with_verifier(*secret, REPLICATION_VERIFIER, create);
    write_if(out, &format!("not {}", known(replication)), &create);
}

/// The statement that creates a role, with its password if it has one. The variable must hold a
/// verifier. Any other text in it may be the password, so psql checks it without the server.
fn with_verifier(has_password: bool, name: &str, create: impl Fn(&str) -> String) -> String {
    if !has_password {
        return create("");
    }
    let create = create(&format!(" password :'{name}'"));
    format!(
        "\\set is_verifier false\n\\if :{{?{name}}}\n\
         \\set is_verifier `case :'{name}' in 'SCRAM-SHA-256$'[1-9]*:*'$'*:*) echo true;; *) echo false;; esac`\n\\endif\n\
         \\if :is_verifier\n{create}\n\\else\n\
         do $$ begin raise exception 'the psql variable {name} holds no SCRAM verifier: see the head of this file'; end $$;\n\
         \\endif"
    )
}

fn of_schema(plan: &Script, out: &mut String) {
    let (me, deployment) = (names::literal(&plan.me.to_string()), names::literal(&plan.deployment));
    for (number, migration) in schema::migrations(&plan.deployment, schema::MIGRATIONS) {
        let _ = write!(out, "\n-- Schema, version {number}.\n");
        if number == 1 {
            write_if(out, "to_regclass('onceway.migrations') is null", &migration);
            let _ = write!(
                out,
                "do $$ begin\n if exists (select from onceway.meta where deployment <> {deployment}) then\n  \
                 raise exception 'this store belongs to another deployment';\n end if;\n\
                 end $$;\n"
            );
        } else {
            write_if(out, &format!("(select count(*) from onceway.migrations) < {number}"), &migration);
        }
    }
    out.push_str("\n-- The leaves: each region writes its own, and has a copy of all others.\n");
    for origin in &plan.all {
        let question = format!("to_regclass('{}') is null", names::records(origin));
        write_if(out, &question, &statements::leaves(origin));
    }
    out.push_str("\n-- Where this region's claims pass, and its voice among the voters.\n");
    let [gate, heartbeat] = schema::gate_and_heartbeat(&plan.me);
    let _ = write!(
        out,
        "do $$ begin\n if exists (select from onceway.gate where origin <> {me}) then\n  \
         raise exception 'this store belongs to another region, or to another build of it';\n end if;\nend $$;\n"
    );
    write_if(out, "not exists (select from onceway.gate)", &format!("{gate};\n{heartbeat};"));
    let _ = writeln!(out, "{}{};", schema::own_indexes(&plan.me), schema::ACCEPTOR);
    out.push_str("\n-- The routines that claim.\n");
    let digest = names::literal(&schema::routines_digest(&plan.me));
    let question = format!("not exists (select from onceway.meta where routines = {digest})");
    write_if(out, &question, &schema::install_routines(&plan.me));
}

fn of_rights(plan: &Script, out: &mut String) {
    out.push_str("\n-- Rights, where they are missing.\n");
    let value = |role: &str, right: &Right| {
        let Right { kind, object, privilege } = right;
        format!("('{role}', '{kind}', {}, '{privilege}')", names::literal(object))
    };
    let gateway = roles::gateway_rights(&plan.me, &plan.all);
    let gateway = gateway.iter().map(|right| value(&plan.gateway_role.0, right));
    let replication = roles::replication_rights(&plan.me);
    let replication = replication.iter().map(|right| value(&plan.replication_role.0, right));
    let values = gateway.chain(replication).collect::<Vec<_>>().join(",\n              ");
    let _ = write!(
        out,
        "select format('grant %s on %s %s to %I', privilege, kind, object, role)\n  \
         from (values {values}) as wanted (role, kind, object, privilege)\n where not case kind\n  \
         when 'schema' then has_schema_privilege(role, object, privilege)\n  \
         when 'table' then has_table_privilege(role, object, privilege)\n  \
         else has_function_privilege(role, object, privilege) end \\gexec\n"
    );
    out.push_str("\n-- What the other regions subscribe to.\n");
    // Each column by name, as in `init`: one added later is published when all regions have it.
    let [name, records, heartbeats] =
        [names::publication(&plan.me), names::records(&plan.me), names::heartbeats(&plan.me)];
    let columns = |table: &str| {
        format!(
            "(select string_agg(quote_ident(attname), ', ' order by attnum) from pg_attribute\n   \
             where attrelid = '{table}'::regclass and attnum > 0 and not attisdropped)"
        )
    };
    let _ = write!(
        out,
        "select format('create publication {name} for table {records} (%s), {heartbeats} (%s) with (publish = ''insert, update, delete'')',\n  \
         {},\n  {})\n where not exists (select from pg_publication where pubname = '{name}') \\gexec\n",
        columns(&records),
        columns(&heartbeats)
    );
}

/// Writes the subscriptions. A slot is made only together with its subscription: a new slot under
/// an existing subscription loses rows in silence.
fn of_subscriptions(plan: &Script, out: &mut String) {
    if plan.subscribe.is_empty() {
        return;
    }
    out.push_str(
        "\n-- Subscriptions, on request. Each makes its slot at the other region, which waits for every transaction there: two regions that subscribe to\n\
         -- each other at the same moment would wait for each other, hence one after the other, and the time limit.\n\
         \\if :{?subscriptions}\nset statement_timeout = '60s';\n",
    );
    for (peer, whence) in &plan.subscribe {
        let name = names::subscription(&plan.me.region, &peer.region);
        let [records, heartbeats] = [names::records(peer), names::heartbeats(peer)];
        out.push_str("\\unset publisher\n");
        out.push_str(&set("publisher", whence));
        let _ = writeln!(
            out,
            "select btrim(:'publisher', E' \\t\\r\\n') as publisher \\gset\n\
             select :'publisher' || case when :'publisher' ~ '://|keepalives' then '' else '{}' end as publisher \\gset",
            publisher::KEPT_ALIVE
        );
        let question = format!(
            "not exists (select from pg_subscription s join pg_database d on d.oid = s.subdbid\n  \
             where s.subname = '{name}' and d.datname = current_database())\n  \
             and not exists (select from {records}) and not exists (select from {heartbeats})"
        );
        let create = format!(
            "create subscription {name} connection :'publisher' publication {}\n  \
             with (slot_name = {name}, copy_data = true, synchronous_commit = off);\n\
             select format('comment on subscription {name} is %L', {}) \\gexec",
            names::publication(peer),
            mesh::TIMELINE
        );
        write_if(out, &question, &create);
    }
    out.push_str("\\else\n\\echo made, but for the subscriptions: run this with --set subscriptions=1 when all regions have come so far\n\\endif\n");
}
