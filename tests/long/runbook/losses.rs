//! A region dies, another one too, and both return; then the disk of the second is gone. Or the
//! register is lost: numbers stand in it that nothing can follow.
//!
//! A site without power is SIGKILL to everything in it. No message of a peer poisons a register, so
//! SQL does.

use crate::runbook::anew::new_store;
use crate::runbook::book::{Section, metric};
use crate::support::*;

/// Numbers that nothing can follow: a promise of each acceptor, and the epoch of each gate. That
/// epoch's view seals every region.
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

/// Its epoch, as each region says.
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
    for region in &fleet.regions {
        region.serves().await.unwrap();
    }
    until("the key to run", async || ask(post(&us.public(), "/v1/charges", &key, BODY)).await.status == 201)
        .await;
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
        printed.status.success() && String::from_utf8_lossy(&printed.stdout).contains("100.00 %")
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
