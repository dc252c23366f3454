//! Scripts for psql: afterwards `store init` finds nothing to do, or works with the roles. An owner
//! without superuser rights runs that of `store init --print`, a superuser that of
//! deploy/postgres/roles.sql. On 15 only a superuser may create subscriptions.

use crate::store::support::*;
use crate::support::documents::text as document;
use onceway::adapters::postgres::provision::{Script, Whence, script, verifiers};

const VARIABLE: &str = "ONCEWAY_TEST_PUBLISHER";

/// Runs a script as `owner`; the other region's connection string is in the environment.
fn psql(region: &Region, script: &str, publisher: Option<&str>, more: &[&str]) -> Result<String, String> {
    let mut command = region.psql("owner");
    command.args(more).env_remove(VARIABLE).envs(publisher.map(|text| (VARIABLE, text)));
    played(command, script)
}

/// Runs psql with a script. Returns what it said, as an error if it failed.
fn played(mut psql: Command, script: &str) -> Result<String, String> {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), script).unwrap();
    let Output { status, stdout, stderr } = psql.arg("--file").arg(file.path()).output().unwrap();
    let said = String::from_utf8([stdout, stderr].concat()).unwrap();
    if status.success() { Ok(said) } else { Err(said) }
}

/// A region whose DBA made an owner, and on 15 the role that nobody else may make. Peers come with
/// a password: newer servers accept no other subscription from an owner without superuser rights.
async fn owned(origin: &str) -> Region {
    let region = Region::start(origin).await;
    let owner = "create role owner login createrole; create role repl login replication password 'old'; \
                 grant create on database shop to owner; grant pg_read_all_data to owner";
    let admin = region.admin().await;
    admin.batch_execute(owner).await.unwrap();
    ask_for_password(&region.cluster, &admin, "repl").await;
    region
}

async fn may_subscribe(region: &Region) {
    let newer = Binaries::find_or_install().unwrap().major() >= 16;
    let right = if newer { "grant pg_create_subscription to owner" } else { "alter role owner superuser" };
    region.admin().await.batch_execute(right).await.unwrap();
}

fn wanted(plan: &Plan, publisher: Whence) -> Script {
    Script {
        me: plan.me.clone(),
        all: plan.all.clone(),
        deployment: plan.deployment.clone(),
        gateway_role: (plan.gateway_role.name.clone(), false),
        replication_role: (plan.replication_role.as_ref().unwrap().name.clone(), false),
        subscribe: plan.subscribe.iter().map(|(peer, _)| (peer.clone(), publisher.clone())).collect(),
    }
}

fn plan(region: &Region, peer: &Region) -> Plan {
    let admin = region.cluster.url(DATABASE).replace("postgres@", "owner@").parse().unwrap();
    let mut plan = Plan { admin, ..region.plan(&[peer], &[]) };
    with_password(&mut plan, "old");
    plan
}

fn with_password(plan: &mut Plan, password: &str) {
    for (_, conninfo) in &mut plan.subscribe {
        let (rest, _) = conninfo.split_once(" password=").unwrap_or((conninfo.as_str(), ""));
        *conninfo = format!("{rest} password={password}");
    }
}

/// With the verifiers in the variables, the roles log in by their passwords.
#[tokio::test]
async fn psql_sends_no_password() {
    let region = Region::start("eu-west#1").await;
    let mut wanted = wanted(&region.plan(&[], &[]), Whence::Variable(VARIABLE.to_owned()));
    (wanted.gateway_role.1, wanted.replication_role.1) = (true, true);
    let text = script(&wanted);
    let superuser = ["--username", "postgres", "--echo-queries"];
    let names = async || {
        let sql =
            "select rolname from pg_authid where rolname in ($1, $2) and rolpassword like 'SCRAM-SHA-256$%'";
        let (gateway, replication) = (&wanted.gateway_role.0, &wanted.replication_role.0);
        region.admin().await.query(sql, &[gateway, replication]).await.unwrap().len()
    };
    let plain =
        "\\set gateway_verifier 'planted-secret'\n\\set replication_verifier 'SCRAM-planted-secret'\n";
    for variables in ["", plain] {
        let said = psql(&region, &format!("{variables}{text}"), None, &superuser).unwrap_err();
        assert!(said.contains("the psql variable gateway_verifier holds no SCRAM verifier"), "{said}");
        assert!(said.contains("select not exists") && !said.contains("planted"), "{said}");
    }
    assert_eq!(names().await, 0, "no role without its password");
    let variables = verifiers(Some("planted-secret"), Some("planted-other"));
    let said = psql(&region, &format!("{variables}{text}"), None, &superuser).unwrap();
    assert!(said.contains("password 'SCRAM-SHA-256$4096:") && !said.contains("planted"), "{said}");
    assert_eq!(names().await, 2);
    // Begun before passwords are asked for: the superuser has none.
    let admin = region.admin().await;
    let hba = region.cluster.data().join("pg_hba.conf");
    fs::write(&hba, "host all all 127.0.0.1/32 scram-sha-256\n").unwrap();
    admin.query("select pg_reload_conf()", &[]).await.unwrap();
    let log_in = async |password: &str| {
        let text = format!("user={} password={password}", wanted.gateway_role.0);
        let mut config: tokio_postgres::Config = text.parse().unwrap();
        config.host("127.0.0.1").port(region.cluster.port()).dbname(DATABASE);
        config.connect(tokio_postgres::NoTls).await.map(|_| ())
    };
    found("passwords to be asked for", || async { log_in("planted-other").await.err() }).await;
    log_in("planted-secret").await.unwrap();
}

#[tokio::test]
async fn init_finds_nothing_to_do_after_the_script() {
    let folder = tempfile::tempdir().unwrap();
    let (eu, us) = tokio::join!(owned("eu-west#1"), owned("us#1"));
    let (eu_plan, us_plan) = (plan(&eu, &us), plan(&us, &eu));
    let file = folder.path().join("it's a file");
    let write = |path: &Path, text: &str| fs::write(path, text).unwrap();
    write(&file, &format!("{}\n", us_plan.subscribe[0].1));
    let eu_script = script(&wanted(&eu_plan, Whence::Variable(VARIABLE.to_owned())));
    let us_script = script(&wanted(&us_plan, Whence::File(file)));
    let publisher = Some(eu_plan.subscribe[0].1.as_str());

    for (region, text) in [(&eu, &eu_script), (&us, &us_script), (&eu, &eu_script)] {
        let said = psql(region, text, None, &[]).unwrap();
        assert!(said.contains("--set subscriptions=1"), "{said}");
    }
    let stranger = eu_script.replace("'test'", "'another'");
    let refused = psql(&eu, &stranger, None, &[]).unwrap_err();
    assert!(refused.contains("belongs to another deployment"), "{refused}");

    let too = ["--set", "subscriptions=1"];
    let refused = psql(&eu, &eu_script, publisher, &too).unwrap_err();
    assert!(refused.contains("create subscription"), "{refused}");
    may_subscribe(&eu).await;
    may_subscribe(&us).await;
    let unset = psql(&eu, &eu_script, None, &too).unwrap_err();
    assert!(unset.contains(":'publisher'") || unset.contains("\":\""), "{unset}");
    for _ in 0..2 {
        psql(&eu, &eu_script, publisher, &too).unwrap();
        psql(&us, &us_script, None, &too).unwrap();
    }
    for plan in [&eu_plan, &us_plan] {
        let report = init(plan).await;
        assert!(report.changes() == 0 && !report.is_broken(), "{report}");
        init_until_complete(plan).await;
        whole(&check(plan).await);
    }
    a_password_is_changed_and_no_row_is_lost(&eu, &us, us_plan).await;
}

/// In the order of deploy/postgres/README.md, "Passwords", with a link that breaks in between.
async fn a_password_is_changed_and_no_row_is_lost(eu: &Region, us: &Region, mut plan: Plan) {
    let line = async |plan: &Plan| {
        let report = check(plan).await;
        report.lines.into_iter().find(|line| line.what == "subscription from eu-west#1").unwrap().status
    };
    let (there, here) = (eu.admin().await, us.admin().await);
    there.batch_execute("alter role repl password 'new'").await.unwrap();
    let end = "select pg_terminate_backend(active_pid, 10000) from pg_replication_slots where active";
    there.query(end, &[]).await.unwrap();
    there.batch_execute("update onceway.heartbeats_eu_west_g1 set seq = 77").await.unwrap();
    assert!(matches!(line(&plan).await, Status::Pending(why) if why.contains("28P01")));
    with_password(&mut plan, "new");
    assert!(init(&plan).await.changes() == 1);
    init_until_complete(&plan).await;
    until("what was written meanwhile", async || {
        let sql = "select seq from onceway.heartbeats where origin = 'eu-west#1'";
        value::<i64>(&here, sql).await == 77
    })
    .await;
}

const NEWER: &str = "grant pg_create_subscription to onceway_owner;\n";

/// Runs the file as its head says, twice: repetition is allowed.
fn made(region: &Region) {
    let mut text = document("deploy/postgres/roles.sql");
    if Binaries::find_or_install().unwrap().major() < 16 {
        assert_eq!(text.matches(NEWER).count(), 1, "the grant is there");
        text = text.replace(NEWER, "");
    }
    for _ in 0..2 {
        let mut psql = region.psql("postgres");
        for name in ["OWNER", "GATEWAY", "REPLICATION"] {
            psql.env(format!("ONCEWAY_{name}_PASSWORD"), password(name));
        }
        played(psql, &text).unwrap();
    }
}

fn password(of: &str) -> String {
    format!("it's {of}")
}

/// A server that asks the three roles for their passwords, with the file's roles.
async fn by_roles_sql(origin: &str) -> Region {
    let region = Region::start(origin).await;
    let roles = "onceway_owner,onceway_gateway,onceway_replication";
    ask_for_password(&region.cluster, &region.admin().await, roles).await;
    made(&region);
    region
}

fn address(region: &Region, role: &str, of: &str) -> String {
    let password = password(of).replace('\'', "\\'");
    let port = region.cluster.port();
    format!("host=127.0.0.1 port={port} user={role} dbname={DATABASE} password='{password}'")
}

fn plan_of_roles(region: &Region, peer: &Region) -> Plan {
    let role = |name: &str| Role { name: name.to_owned(), password: None };
    Plan {
        gateway_role: role("onceway_gateway"),
        replication_role: Some(role("onceway_replication")),
        admin: address(region, "onceway_owner", "OWNER").parse().unwrap(),
        subscribe: vec![(peer.origin.clone(), address(peer, "onceway_replication", "REPLICATION"))],
        ..region.plan(&[peer], &[])
    }
}

#[tokio::test]
async fn roles_sql_suffices_for_init_and_a_gateway() {
    let (eu, us) = tokio::join!(by_roles_sql("eu-west#1"), by_roles_sql("us#1"));
    if Binaries::find_or_install().unwrap().major() < 16 {
        for region in [&eu, &us] {
            region.admin().await.batch_execute("alter role onceway_owner superuser").await.unwrap();
        }
    }
    let plans = [plan_of_roles(&eu, &us), plan_of_roles(&us, &eu)];
    // A store has its publication first, and then subscribes to the other one's.
    for plan in &plans {
        init(plan).await;
    }
    for plan in &plans {
        init_until_complete(plan).await;
    }
    for plan in &plans {
        whole(&check(plan).await);
    }
    let gateway = address(&eu, "onceway_gateway", "GATEWAY").parse().unwrap();
    let store = eu.store_at(gateway).unwrap();
    let gate = open(&store).await;
    won(&store, &ask("by-the-file", 1, gate.version)).await;
    assert_eq!(seq(&store).await, Some(1));
}
