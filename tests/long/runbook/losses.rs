//! A region dies, another one too, and both return; then the disk of the second is gone. Or the
//! register is lost, or a slot, or a disk fills because a subscriber is dead. A site without power
//! is SIGKILL to everything in it. No message of a peer poisons a register, so SQL does.

use crate::runbook::anew::new_store;
use crate::runbook::book::{Section, metric};
use crate::support::*;

/// Numbers that nothing can follow, in acceptors and gates; the view seals every region.
const POISON: &str = r#"
    update onceway.acceptor
       set version = version + 1,
           state = jsonb_set(state, '{promised}', '{"counter": 18446744073709551615, "region": "us-east", "proposer": 1}');
    update onceway.gate
       set version = version + 1, epoch = 9000000000000000000,
           view = jsonb_set(jsonb_set(view, '{epoch}', '9000000000000000000'), '{members}', (
               select jsonb_agg(member || '{"standing": {"sealed": {"drained": true}}}')
               from jsonb_array_elements(view -> 'members') as member));
"#;

async fn epochs(fleet: &Deployment) -> Vec<u64> {
    let mut all = Vec::new();
    for region in &fleet.regions {
        all.push(status(region).await["epoch"].as_u64().unwrap());
    }
    all
}

pub async fn poisoned(mut section: Section<'_>, fleet: &Deployment) {
    let [us, eu] = [&fleet.regions[0], &fleet.regions[1]];
    let genuine = epochs(fleet).await[0];
    for region in &fleet.regions {
        region.act(Action::Stop, Part::Gateway).await.unwrap();
        region.cluster.connect(DATABASE).await.unwrap().batch_execute(POISON).await.unwrap();
    }
    for region in &fleet.regions {
        region.act(Action::Start, Part::Gateway).await.unwrap();
    }
    let followed = async || epochs(fleet).await.iter().all(|epoch| *epoch == 9_000_000_000_000_000_000);
    until("the poisoned epoch to be shown", followed).await;
    let key = key("poisoned");
    let refused = post(&us.public(), "/v1/charges", &key, BODY).send(PATIENCE).await.unwrap();
    assert_eq!(refused.status, 503, "{}", refused.text());
    section.there(eu);
    section.put("--poisoned-above 7 --confirm 7", format!("--poisoned-above {genuine} --confirm {genuine}"));
    section.well("psql --command", &[&format!(" {genuine} |")]).await;
    section.ask(us);
    section.run_again("onceway break-glass").await.shows("go on from the view of epoch");
    let same = async || {
        let all = epochs(fleet).await;
        all[0] > 9_000_000_000_000_000_000 && all.iter().all(|epoch| *epoch == all[0])
    };
    until("all regions to follow", same).await;
    section.well("onceway status ", &[]).await;
    all_serve(fleet).await;
    until("the key to run", async || charge(us, &key).await.status == 201).await;
    assert_eq!(effects(&fleet.ledger, &key), 1);
    section.run_again("onceway region drain eu-west --reason").await.shows("eu-west is drained");
    section.run_again("onceway region resume eu-west").await.shows("serves again");
    section.end();
}

pub async fn dies(mut section: Section<'_>, fleet: &Deployment) {
    let [us, eu, ap] = [&fleet.regions[0], &fleet.regions[1], &fleet.regions[2]];
    eu.act(Action::Kill, Part::Both).await.unwrap();
    metric(us, "onceway_peer_up{peer=\"eu-west\"}", "0").await;
    metric(us, "onceway_region_serving{member=\"eu-west\"}", "0").await;
    section.well("onceway status ", &["LOST: its keys run elsewhere"]).await;
    section.run("onceway region status eu-west").await.ends(&[3]).shows("LOST");
    section.well("onceway takeover eu-west --reason", &["eu-west is lost since epoch"]).await;
    section.run("onceway doubts").await.ends(&[0, 3]);
    section.run("onceway audit ").await.ends(&[0, 3]);
    let taken = section.run_again("onceway takeover eu-west --accept-risk").await;
    taken.shows("without waiting its keys open in");
    metric(us, "onceway_hindrances", "0").await;
    ap.act(Action::Kill, Part::Both).await.unwrap();
    section.run_again("onceway break-glass").await.shows("are lost and vote no more");
    metric(us, "onceway_hindrances", "0").await;
    until("us-east to run keys alone", async || {
        let printed = us.operate(&["region", "status", "us-east"]).await.unwrap();
        printed.status.success() && out(&printed).contains("100.00 %")
    })
    .await;
    section.end();
    // The next sections begin with ap-south back.
    ap.act(Action::Start, Part::Both).await.unwrap();
    operated(us, &["region", "status", "ap-south"]).await;
}

pub async fn returns(mut section: Section<'_>, fleet: &Deployment) {
    let [us, eu] = [&fleet.regions[0], &fleet.regions[1]];
    eu.act(Action::Start, Part::Both).await.unwrap();
    section.ask(eu);
    section.run_until("onceway status ", "store      open").await.hides("the store went back");
    section.well("until onceway region status eu-west", &["serving"]).await;
    metric(us, "onceway_peer_up{peer=\"eu-west\"}", "1").await;
    section.run_again("onceway store check --config config/eu-west.toml").await;
    section.run("onceway audit ").await.ends(&[0, 3]);
    section.run("onceway doubts").await.ends(&[0, 3]);
    // Now its disk is gone.
    eu.act(Action::Kill, Part::Both).await.unwrap();
    section.ask(us);
    metric(us, "onceway_region_serving{member=\"eu-west\"}", "0").await;
    let printed = section.run_again("onceway region rebuild eu-west --accept-risk").await;
    new_store(&mut section, fleet, &printed.text).await;
    eu.act(Action::Start, Part::Gateway).await.unwrap();
    section.well("until onceway region status eu-west", &["serving"]).await;
    section.end();
}

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

pub async fn slot_lost(mut section: Section<'_>, fleet: &Deployment) {
    drop_slot(&fleet.regions[1], "us-east").await;
    let checked = section.run("onceway store check --config config/us-east.toml").await;
    checked.ends(&[1]).shows("broken").shows("eu-west");
    let reseed = "onceway store reseed --config config/us-east.toml --from eu-west";
    section.well(&format!("{reseed} --dry-run"), &["all rows copied again"]).await;
    section.well(&format!("{reseed} --wait"), &[]).await;
    is_whole(fleet, 0).await;
    fleet.regions[0].serves().await.unwrap();
    section.end();
}

async fn is_whole(fleet: &Deployment, number: usize) {
    let last = Mutex::new(String::new());
    let whole = async || {
        let output = fleet.regions[number].run(&["store", "check"]).await?;
        *last.lock().unwrap() = out(&output);
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
    // 4 GB of WAL would take too long. Healthy subscribers stay within this bound.
    let client = us.cluster.connect(DATABASE).await.unwrap();
    alter_system(&client, "set max_slot_wal_keep_size = '64MB'").await;
    until("the slot to be lost", async || {
        let switch = "select pg_logical_emit_message(false, 'test', 'x'), pg_switch_wal()";
        client.batch_execute(switch).await.unwrap();
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
    all_serve(fleet).await;
    section.end();
}
