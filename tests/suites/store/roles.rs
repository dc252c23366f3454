//! deploy/postgres/roles.sql as it is, run by psql as a superuser: then `store init` works with its
//! owner, and a gateway with its role.
//!
//! On 15 the owner becomes a superuser for the subscriptions, and the one grant that 15 does not
//! know is left out.

use crate::store::support::*;
use crate::support::documents::text as document;
use onceway::adapters::postgres::provision::Role;

/// The lines for servers from 16 on.
const NEWER: &str = "grant pg_create_subscription to onceway_owner;\n";

/// Runs the file as its head says, twice: repetition is allowed.
fn made(region: &Region) {
    let mut text = document("deploy/postgres/roles.sql");
    if Binaries::find_or_install().unwrap().major() < 16 {
        assert_eq!(text.matches(NEWER).count(), 1, "the grant is there");
        text = text.replace(NEWER, "");
    }
    let script = tempfile::NamedTempFile::new().unwrap();
    fs::write(script.path(), text).unwrap();
    for _ in 0..2 {
        let mut psql = region.psql("postgres");
        psql.arg("--file").arg(script.path());
        for name in ["OWNER", "GATEWAY", "REPLICATION"] {
            psql.env(format!("ONCEWAY_{name}_PASSWORD"), password(name));
        }
        let said = psql.output().unwrap();
        assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
    }
}

/// A password that a script must quote.
fn password(of: &str) -> String {
    format!("it's {of}")
}

/// A server that asks the three roles for their passwords, with the file's roles.
async fn region(origin: &str) -> Region {
    let region = Region::start(origin).await;
    let roles = "onceway_owner,onceway_gateway,onceway_replication";
    ask_for_password(&region.cluster, &region.admin().await, roles).await;
    made(&region);
    region
}

fn address(region: &Region, role: &str, of: &str) -> String {
    let password = password(of).replace('\'', "\\'");
    format!(
        "host=127.0.0.1 port={} user={role} dbname={DATABASE} password='{password}'",
        region.cluster.port()
    )
}

fn plan(region: &Region, peer: &Region) -> Plan {
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
    let (eu, us) = tokio::join!(region("eu-west#1"), region("us#1"));
    if Binaries::find_or_install().unwrap().major() < 16 {
        for region in [&eu, &us] {
            region.admin().await.batch_execute("alter role onceway_owner superuser").await.unwrap();
        }
    }
    let plans = [plan(&eu, &us), plan(&us, &eu)];
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
    let store = PgStore::new(&StoreConfig {
        statement_within: Duration::from_secs(20),
        ..StoreConfig::new(eu.origin.clone(), gateway)
    })
    .unwrap();
    let gate = open(&store).await;
    won(&store, &ask("by-the-file", 1, gate.version)).await;
    assert_eq!(seq(&store).await, Some(1));
}
