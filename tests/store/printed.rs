//! The script of `onceway store init --print`, run by psql as an owner who is no superuser: afterwards `init` finds nothing to do.
//!
//! Neighbours: `provisioning` has the same by connection. `cli.rs` has the command, and that it shows no secret.

use std::path::Path;
use std::process::{Command, Output};

use onceway::adapters::postgres::provision::{self, Plan, Script, Whence, script};
use onceway::fleet::binaries::Binaries;

use crate::support::{DATABASE, Region, init_until_complete};

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

/// A region whose DBA made an owner, and on 15 the role that nobody else may make.
async fn owned(origin: &str) -> Region {
    let region = Region::start(origin).await;
    let owner = "create role owner login createrole; create role repl login replication; \
                 grant create on database shop to owner; grant pg_read_all_data to owner";
    region.admin().await.batch_execute(owner).await.unwrap();
    region
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
    Plan { admin, ..region.plan(&[peer], &[]) }
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
    for region in [&eu, &us] {
        region.admin().await.batch_execute("alter role owner superuser").await.unwrap();
    }
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
}
