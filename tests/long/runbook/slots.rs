//! A lost slot, and a disk that fills because a subscriber is dead. A slot is dropped, as a
//! failover to a standby loses it, or WAL exceeds its bound.

use crate::runbook::book::Section;
use crate::support::*;

async fn drop_slot(at: &Region, by: &str) {
    let client = at.cluster.connect(DATABASE).await.unwrap();
    let like = format!("sub_{}_from_%", by.replace('-', "_"));
    until("the slot to be dropped", async || {
        let end = "select pg_terminate_backend(active_pid) from pg_replication_slots where slot_name like $1 and active";
        client.query(end, &[&like]).await.unwrap();
        let gone = "select pg_drop_replication_slot(slot_name) from pg_replication_slots where slot_name like $1";
        client.query(gone, &[&like]).await.is_ok_and(|rows| rows.len() == 1)
    })
    .await;
}

pub async fn lost(mut section: Section<'_>, fleet: &Deployment) {
    drop_slot(&fleet.regions[1], "us-east").await;
    section
        .run("onceway store check --config config/us-east.toml")
        .await
        .ends(&[1])
        .shows("broken")
        .shows("eu-west");
    section
        .well(
            "onceway store reseed --config config/us-east.toml --from eu-west --dry-run",
            &["all rows copied again"],
        )
        .await;
    section.well("onceway store reseed --config config/us-east.toml --from eu-west --wait", &[]).await;
    is_whole(fleet, 0).await;
    fleet.regions[0].serves().await.unwrap();
    section.end();
}

/// Waits until `onceway store check` ends with 0 and rows stream again.
async fn is_whole(fleet: &Deployment, number: usize) {
    let last = Mutex::new(String::new());
    let whole = async || {
        let output = fleet.regions[number].run(&["store", "check"]).await?;
        *last.lock().unwrap() = String::from_utf8_lossy(&output.stdout).into_owned();
        Ok(output.status.success().then_some(()))
    };
    let whole = wait::for_some("the store to be whole", BOUND, whole).await;
    whole.unwrap_or_else(|error| panic!("{error}: {}", last.lock().unwrap()));
}

pub async fn filling(mut section: Section<'_>, fleet: &Deployment) {
    let [us, eu] = [&fleet.regions[0], &fleet.regions[1]];
    section.there(us);
    eu.act(Action::Kill, Part::Both).await.unwrap();
    let kept = "onceway_slot_retained_bytes{slot=\"sub_eu_west_from_us_east\"}";
    assert!(metrics(us).await.contains(kept), "how one notices");
    section.well("psql --command \"select slot_name", &["eu_west", "reserved"]).await;
    let bound = section.run("psql --command \"alter system").await;
    bound.ends(&[0]).shows("ALTER SYSTEM").shows("CHECKPOINT");
    // 4 GB of WAL would take too long to write. Some segments exceed this bound, and healthy
    // subscribers stay within it.
    let client = us.cluster.connect(DATABASE).await.unwrap();
    alter_system(&client, "set max_slot_wal_keep_size = '64MB'").await;
    until("the slot to be lost", async || {
        client
            .batch_execute("select pg_logical_emit_message(false, 'test', 'x'), pg_switch_wal()")
            .await
            .unwrap();
        client.batch_execute("checkpoint").await.unwrap();
        until("ap-south to follow", async || {
            let near = "select pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn) < 33554432 from pg_replication_slots where slot_name like '%ap_south%'";
            client.query_one(near, &[]).await.unwrap().get(0)
        })
        .await;
        let sql = "select from pg_replication_slots where slot_name like '%eu_west%' and wal_status = 'lost'";
        !client.query(sql, &[]).await.unwrap().is_empty()
    })
    .await;
    alter_system(&client, "reset max_slot_wal_keep_size").await;
    // The lost slot still exists: the repair replaces it.
    eu.act(Action::Start, Part::Both).await.unwrap();
    let repaired = eu.run(&["store", "reseed", "--from", "us-east", "--wait", "60s"]).await.unwrap();
    assert!(repaired.status.success(), "{repaired:?}");
    is_whole(fleet, 1).await;
    eu.act(Action::Kill, Part::Both).await.unwrap();
    until("nobody to stream to the dead one", async || {
        let idle = "select from pg_replication_slots where slot_name like '%eu_west%' and not active";
        !client.query(idle, &[]).await.unwrap().is_empty()
    })
    .await;
    section.well("psql --command \"select pg_drop_replication_slot", &[]).await;
    let left = "select from pg_replication_slots where slot_name like '%eu_west%'";
    assert!(client.query(left, &[]).await.unwrap().is_empty(), "the slot is still there");
    eu.act(Action::Start, Part::Both).await.unwrap();
    section.run("onceway store check --config config/eu-west.toml").await.ends(&[1]).shows("us-east");
    section.well("onceway store reseed --config config/eu-west.toml --from us-east", &[]).await;
    for number in 0..3 {
        is_whole(fleet, number).await;
    }
    for region in &fleet.regions {
        region.serves().await.unwrap();
    }
    section.end();
}
