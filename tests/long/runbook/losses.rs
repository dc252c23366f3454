//! A region dies, another one too, and both return; then the disk of the second is gone.
//!
//! A site without power is SIGKILL to everything in it. It must not stop the region whose gateway
//! is asked.

use onceway::fleet::deployment::Deployment;
use onceway::fleet::region::{Action, Part};

use crate::runbook::anew::new_store;
use crate::runbook::book::{Section, metric};
use crate::support::until;

pub async fn dies(mut section: Section<'_>, fleet: &Deployment) {
    let [us, eu, ap] = [&fleet.regions[0], &fleet.regions[1], &fleet.regions[2]];
    eu.act(Action::Kill, Part::Both).await.unwrap();
    metric(us, "onceway_peer_up{peer=\"eu-west\"}", "0").await;
    metric(us, "onceway_region_serving{member=\"eu-west\"}", "0").await;
    section.run("onceway status ").await.ends(&[0]).shows("LOST: its keys run elsewhere");
    section.run("onceway region status eu-west").await.ends(&[3]).shows("LOST");
    section.run("onceway takeover eu-west --reason").await.ends(&[0]).shows("eu-west is lost since epoch");
    section.run("onceway doubts").await.ends(&[0, 3]);
    section.run("onceway audit ").await.ends(&[0, 3]);
    section
        .run_again("onceway takeover eu-west --accept-risk")
        .await
        .shows("without waiting its keys open in");
    metric(us, "onceway_hindrances", "0").await;
    ap.act(Action::Kill, Part::Both).await.unwrap();
    section.run_again("onceway break-glass").await.shows("are lost and vote no more");
    metric(us, "onceway_hindrances", "0").await;
    until("us-east to run keys alone", async || {
        let told = us.operate(&["region", "status", "us-east"]).await.unwrap();
        told.status.success() && String::from_utf8_lossy(&told.stdout).contains("100.00 %")
    })
    .await;
    section.end();
    // The next sections begin with ap-south back.
    ap.act(Action::Start, Part::Both).await.unwrap();
    until("ap-south to be back", async || {
        us.operate(&["region", "status", "ap-south"]).await.unwrap().status.success()
    })
    .await;
}

pub async fn returns(mut section: Section<'_>, fleet: &Deployment) {
    let [us, eu] = [&fleet.regions[0], &fleet.regions[1]];
    eu.act(Action::Start, Part::Both).await.unwrap();
    section.ask(eu);
    section.run_until("onceway status ", "store      open").await.hides("the store went back");
    section.run("until onceway region status eu-west").await.ends(&[0]).shows("serving");
    metric(us, "onceway_peer_up{peer=\"eu-west\"}", "1").await;
    section.run_again("onceway store check --config config/eu-west.toml").await;
    section.run("onceway audit ").await.ends(&[0, 3]);
    section.run("onceway doubts").await.ends(&[0, 3]);
    // Now its disk is gone.
    eu.act(Action::Kill, Part::Both).await.unwrap();
    section.ask(us);
    metric(us, "onceway_region_serving{member=\"eu-west\"}", "0").await;
    let told = section.run_again("onceway region rebuild eu-west --accept-risk").await;
    new_store(fleet, eu, &told.text).await;
    section
        .run_both(
            "onceway store init --config config/eu-west.toml",
            "onceway store init --config config/us-east.toml",
            "ap-south",
        )
        .await;
    eu.act(Action::Start, Part::Gateway).await.unwrap();
    section.run("until onceway region status eu-west").await.ends(&[0]).shows("serving");
    section.end();
}
