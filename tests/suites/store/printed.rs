//! The script of `onceway store init --print`, run by psql as an owner who is no superuser (on 15 he is one from the subscriptions on, which only a
//! superuser may create there): afterwards `init` finds nothing to do. Then a replication password is changed while a link is down.
//!
//! Neighbours: `provisioning` has the same by connection. `cli.rs` has the command, and that it shows no secret.

use std::path::Path;
use std::process::{Command, Output};

use onceway::adapters::postgres::provision::{self, Plan, Script, Status, Whence, script};
use onceway::fleet::binaries::Binaries;

use crate::store::support::{DATABASE, Region, eventually, init_until_complete};

const VARIABLE: &str = "ONCEWAY_TEST_PUBLISHER";

/// Runs a script as `owner`; the other region's connection string is in the environment.
fn psql(region: &Region, script: &str, publisher: Option<&str>, more: &[&str]) -> Result<String, String> {
    let port = region.cluster.port().to_string();
    let program = Binaries::find_or_install().unwrap().postgres().with_file_name("psql");
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), script).unwrap();
    let mut command = Command::new(program);
    command
        .args(["--no-psqlrc", "--quiet", "--set", "ON_ERROR_STOP=1"])
        .args(more)
        .arg("--file")
        .arg(file.path());
    command.args(["--host", "127.0.0.1", "--port", &port, "--username", "owner", "--dbname", DATABASE]);
    command.env_remove(VARIABLE).envs(publisher.map(|text| (VARIABLE, text)));
    let Output { status, stdout, stderr } = command.output().unwrap();
    let said = String::from_utf8([stdout, stderr].concat()).unwrap();
    if status.success() { Ok(said) } else { Err(said) }
}

/// A region whose DBA made an owner, and on 15 the role that nobody else may make. Peers come with a password: newer servers take no other subscription
/// of an owner who is no superuser.
async fn owned(origin: &str) -> Region {
    let region = Region::start(origin).await;
    let hba = region.cluster.data().join("pg_hba.conf");
    let others = std::fs::read_to_string(&hba).unwrap();
    std::fs::write(&hba, format!("host all repl 127.0.0.1/32 scram-sha-256\n{others}")).unwrap();
    let owner = "create role owner login createrole; create role repl login replication password 'old'; \
                 grant create on database shop to owner; grant pg_read_all_data to owner";
    let admin = region.admin().await;
    admin.batch_execute(owner).await.unwrap();
    admin.query("select pg_reload_conf()", &[]).await.unwrap();
    region
}

/// What an owner needs besides, by the server's version.
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
        gateway_role: (plan.gateway_role.name.clone(), None),
        replication_role: (plan.replication_role.name.clone(), None),
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

#[tokio::test]
async fn init_finds_nothing_to_do_after_the_script() {
    let folder = tempfile::tempdir().unwrap();
    let (eu, us) = tokio::join!(owned("eu-west#1"), owned("us#1"));
    let (eu_plan, us_plan) = (plan(&eu, &us), plan(&us, &eu));
    let file = folder.path().join("it's a file");
    let write = |path: &Path, text: &str| std::fs::write(path, text).unwrap();
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
        let report = provision::init(plan).await.unwrap();
        assert!(report.changes() == 0 && !report.is_broken(), "{report}");
        init_until_complete(plan).await;
        assert!(provision::check(plan).await.unwrap().is_complete());
    }
    a_password_is_changed_and_no_row_is_lost(&eu, &us, us_plan).await;
}

/// In the order of deploy/postgres/README.md, "Passwords", with a link that breaks in between.
async fn a_password_is_changed_and_no_row_is_lost(eu: &Region, us: &Region, mut plan: Plan) {
    let line = async |plan: &Plan| {
        let report = provision::check(plan).await.unwrap();
        report.lines.into_iter().find(|line| line.what == "subscription from eu-west#1").unwrap().status
    };
    let (there, here) = (eu.admin().await, us.admin().await);
    there.batch_execute("alter role repl password 'new'").await.unwrap();
    let end = "select pg_terminate_backend(active_pid, 10000) from pg_replication_slots where active";
    there.query(end, &[]).await.unwrap();
    there.batch_execute("update onceway.heartbeats_eu_west_g1 set seq = 77").await.unwrap();
    assert!(matches!(line(&plan).await, Status::Pending(why) if why.contains("28P01")));
    with_password(&mut plan, "new");
    assert!(provision::init(&plan).await.unwrap().changes() == 1);
    init_until_complete(&plan).await;
    eventually("what was written meanwhile", || async {
        let sql = "select seq from onceway.heartbeats where origin = 'eu-west#1'";
        (here.query_one(sql, &[]).await.unwrap().get::<_, i64>(0) == 77).then_some(())
    })
    .await;
}
