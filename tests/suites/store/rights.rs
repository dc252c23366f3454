//! The rights that `store check` demands of the two roles and those it forbids: each one alone,
//! revoked or granted by hand. They are listed here once more, not read from the code that grants
//! them.

use crate::store::provisioning::line;
use crate::store::support::*;

const WRITE: &str = "delete insert select update";

/// Kind and names of objects of onceway, and each role's privileges on them.
const GRANTED: [(&str, &str, &str, &str); 8] = [
    ("gw", "function", "accept claim hold_gate reclaim", "execute"),
    ("gw", "table", "acceptor forgotten gate", "select update"),
    ("gw", "table", "doubts escrows jobs peer_memory", WRITE),
    ("gw", "table", "heartbeats_eu_g1 records_eu_g1 records_imported", WRITE),
    ("gw", "table", "heartbeats heartbeats_other_g1 meta records records_other_g1", "select"),
    ("gw", "table", "journal views", "insert select"),
    ("repl", "table", "heartbeats_eu_g1 meta records_eu_g1", "select"),
    ("gw repl", "schema", "", "usage"),
];

fn should() -> BTreeSet<[String; 3]> {
    let mut all = BTreeSet::new();
    for (roles, kind, names, privileges) in GRANTED {
        for (role, name) in roles.split(' ').flat_map(|role| names.split(' ').map(move |name| (role, name))) {
            let object = format!("{kind} onceway.{name}").trim_end_matches('.').to_owned();
            all.extend(privileges.split(' ').map(|one| [role.to_owned(), object.clone(), one.to_owned()]));
        }
    }
    all
}

const SETTINGS: [&str; 7] = [
    "default_transaction_isolation=read committed",
    "enable_hashjoin=off",
    "enable_mergejoin=off",
    "enable_seqscan=off",
    "jit=off",
    "search_path=onceway",
    "synchronous_commit=on",
];

/// The grants of the two roles: role, object, privilege, and the object as `grant` wants it.
async fn granted(admin: &Client) -> Vec<[String; 4]> {
    let sql = "select a.grantee::regrole::text, o.what || ' ' || o.name, lower(a.privilege_type), o.what || ' ' || o.whole
                 from (
                     select 'schema' as what, nspname::text as name, nspname::text as whole, nspacl as acl from pg_namespace
                     union all
                     select 'table', oid::regclass::text, oid::regclass::text, relacl from pg_class
                     union all
                     select 'function', pronamespace::regnamespace || '.' || proname, oid::regprocedure::text, proacl from pg_proc
                 ) as o, aclexplode(o.acl) as a
                where a.grantee in ('gw'::regrole, 'repl'::regrole)";
    let rows = admin.query(sql, &[]).await.unwrap();
    let mut all: Vec<[String; 4]> = rows.iter().map(|row| [0, 1, 2, 3].map(|at| row.get(at))).collect();
    all.sort();
    all
}

async fn settings(admin: &Client) -> Vec<String> {
    let sql = "select unnest(setconfig) from pg_db_role_setting where setrole = 'gw'::regrole order by 1";
    admin.query(sql, &[]).await.unwrap().iter().map(|row| row.get(0)).collect()
}

#[tokio::test]
async fn missing_rights_are_reported_and_restored() {
    let region = Region::start("eu#1").await;
    let (plan, admin) = (region.plan(&[], &["other#1"]), region.admin().await);
    let complaint = async |role: &str, wrong: &str| {
        admin.batch_execute(wrong).await.unwrap();
        let report = check(&plan).await;
        match line(&report, &format!("role {role}")) {
            Status::Pending(why) => why.clone(),
            Status::Fine | Status::Changed | Status::Broken(_) => panic!("{wrong}: {report}"),
        }
    };
    whole(&init(&plan).await);
    for role in ["gw", "repl"] {
        let why = complaint(role, &format!("alter role {role} rename to gone")).await;
        assert!(why.starts_with("it is missing"), "{why}");
        admin.batch_execute(&format!("alter role gone rename to {role}")).await.unwrap();
    }

    let all = granted(&admin).await;
    let has = all.iter().map(|[role, object, privilege, _]| [role, object, privilege].map(String::clone));
    assert_eq!(has.collect::<Vec<_>>(), Vec::from_iter(should()), "least rights");
    assert_eq!(settings(&admin).await, SETTINGS);

    let control = ["pg_control_checkpoint()", "pg_control_system()"]
        .map(|name| ["gw", "execute", name, &format!("function {name}"), "public"].map(str::to_owned));
    let granted_to = all.iter().map(|[role, object, privilege, whole]| {
        let (_, name) = object.split_once(' ').unwrap();
        [role, privilege, name, whole, role].map(str::to_owned)
    });
    for [role, privilege, name, whole, from] in granted_to.chain(control) {
        let why = complaint(&role, &format!("revoke {privilege} on {whole} from {from}")).await;
        let rest = why.strip_prefix(&format!("it lacks {privilege} on {name}")).unwrap_or_default();
        assert!(rest.starts_with(['(', ':']), "{privilege} on {whole} of {role}: {why}");
        admin.batch_execute(&format!("grant {privilege} on {whole} to {from}")).await.unwrap();
    }
    for setting in SETTINGS {
        let (name, value) = setting.split_once('=').unwrap();
        let why = complaint("gw", &format!("alter role gw in database shop reset {name}")).await;
        assert!(why.starts_with(&format!("it lacks {setting}:")), "{setting}: {why}");
        let back = format!("alter role gw in database shop set {name} = '{value}'");
        admin.batch_execute(&back).await.unwrap();
    }
    whole(&check(&plan).await);

    for [role, _, privilege, whole] in &all {
        admin.batch_execute(&format!("revoke {privilege} on {whole} from {role}")).await.unwrap();
    }
    admin.batch_execute("alter role gw in database shop reset all").await.unwrap();
    whole(&init(&plan).await);
    assert_eq!((granted(&admin).await, settings(&admin).await), (all, SETTINGS.map(str::to_owned).to_vec()));
}

#[tokio::test]
async fn excess_rights_are_reported_and_left_alone() {
    let (region, _store, _gate) = Region::ready("eu#1").await;
    let (plan, admin) = (region.plan(&[], &["other#1"]), region.admin().await);
    let mut cases = Vec::new();
    for role in ["gw", "repl"] {
        let [replicates, not, why] = match role {
            "gw" => ["replication", "noreplication", "it may replicate, and so read all WAL"],
            _ => ["noreplication", "replication", "it may not replicate: `alter role repl replication`"],
        };
        for (attribute, opposite, why) in [
            ("superuser", "nosuperuser", "it is a superuser"),
            ("createrole", "nocreaterole", "it may make roles"),
            ("nologin", "login", "it lacks LOGIN"),
            (replicates, not, why),
        ] {
            let alter = |attribute: &str| format!("alter role {role} {attribute}");
            cases.push((role, alter(attribute), alter(opposite), why.to_owned()));
        }
        let origins: &[&str] = if role == "gw" { &["other"] } else { &["eu", "other"] };
        let leaves = origins
            .iter()
            .flat_map(|origin| ["records", "heartbeats"].map(|table| format!("onceway.{table}_{origin}_g1")));
        for leaf in leaves.chain(["onceway.records", "onceway.heartbeats"].map(str::to_owned)) {
            for right in ["insert", "update", "delete", "truncate", "insert (origin)", "update (origin)"] {
                let wrong = format!("grant {right} on {leaf} to {role}");
                let back = format!("revoke {right} on {leaf} from {role}");
                cases.push((role, wrong, back, format!("it may write {leaf},")));
            }
        }
    }
    for (role, wrong, back, why) in &cases {
        admin.batch_execute(wrong).await.unwrap();
        for report in [check(&plan).await, init(&plan).await] {
            let Status::Broken(complaint) = line(&report, &format!("role {role}")) else {
                panic!("{wrong}: {report}")
            };
            assert!(complaint.starts_with(why), "{wrong}: {report}");
        }
        admin.batch_execute(back).await.unwrap();
        whole(&check(&plan).await);
    }
}
