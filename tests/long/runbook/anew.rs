//! A store that is made anew: a major upgrade of Postgres; and a region that is new.
//!
//! Neighbours: `book` runs the lines, `losses` has the store whose disk is gone. The major upgrade gets an empty server of the same version: there is
//! no other here. It must not write a generation that the product has not named.

use onceway::fleet::deployment::Deployment;
use onceway::fleet::files::{self, DATABASE};
use onceway::fleet::region::{Action, Part, Region};

use crate::runbook::book::Section;
use crate::support::until;

/// An empty server and database for the region, and in its file the generation that `region rebuild` printed.
pub async fn new_store(fleet: &Deployment, region: &Region, told: &str) {
    let (_, rest) = told.split_once("generation ").unwrap_or_else(|| panic!("no generation in {told}"));
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    region.act(Action::Kill, Part::Both).await.unwrap();
    region.cluster.make_anew().await.unwrap();
    region.cluster.start().await.unwrap();
    region.cluster.create_database(DATABASE).await.unwrap();
    let file = fleet.dir().join(format!("{}.toml", region.name));
    let text = std::fs::read_to_string(&file).unwrap();
    let without: Vec<&str> = text.lines().filter(|line| !line.starts_with("generation = ")).collect();
    let text = without.join("\n").replacen("[store]\n", &format!("[store]\ngeneration = {digits}\n"), 1);
    std::fs::write(&file, text).unwrap();
}

pub async fn major_upgrade(mut section: Section<'_>, fleet: &Deployment) {
    let eu = &fleet.regions[1];
    section.there(eu);
    section.run_again("onceway region drain eu-west --reason").await;
    section.run("onceway jobs --admin").await.ends(&[0]);
    eu.act(Action::Stop, Part::Gateway).await.unwrap();
    let told = section.run_again("onceway region rebuild eu-west --reason").await;
    new_store(fleet, eu, &told.text).await;
    section
        .run_both(
            "onceway store init --config config/eu-west.toml",
            "onceway store init --config config/us-east.toml",
            "ap-south",
        )
        .await;
    section.run_again("onceway store check --config config/eu-west.toml").await;
    eu.act(Action::Start, Part::Gateway).await.unwrap();
    section.run_again("onceway region resume eu-west").await;
    section.run("until onceway region status eu-west").await.ends(&[0]).shows("serving");
    section.end();
}

/// Whether a region's gateway lists the new one, which has no share yet, as up.
async fn shows_up(region: &Region) -> bool {
    let told = region.operate(&["status"]).await.unwrap();
    let told = String::from_utf8_lossy(&told.stdout).into_owned();
    told.lines().any(|line| line.split_whitespace().take(3).eq(["sa-east", "-", "yes"]))
}

pub async fn added(mut section: Section<'_>, fleet: &Deployment) {
    let spare = fleet.spare.as_ref().expect("machines for one more region");
    let us = &fleet.regions[0];
    // The fleet has made its certificate already: as if it had not.
    for name in ["sa-east.pem", "sa-east.key"] {
        std::fs::remove_file(fleet.dir().join("certificates").join(name)).unwrap();
    }
    section.run("onceway certs --out certificates --region sa-east").await.ends(&[0]);
    let names: Vec<_> = fleet.all().map(|region| region.name.clone()).collect();
    let ring = files::ring(&names, &[1; 4], files::FAILOVER);
    std::fs::write(fleet.dir().join("ring.toml"), ring).unwrap();
    for (number, name) in names.iter().enumerate() {
        let old = fleet.dir().join(format!("{name}.toml"));
        let kept = std::fs::read_to_string(&old).unwrap();
        fleet.write_file(number, &[0, 1, 2, 3]).unwrap();
        let generation = kept.lines().find(|line| line.starts_with("generation = "));
        if let Some(line) = generation {
            let text = std::fs::read_to_string(&old).unwrap();
            std::fs::write(&old, text.replacen("[store]\n", &format!("[store]\n{line}\n"), 1)).unwrap();
        }
    }
    section
        .run("onceway check config/us-east.toml config/eu-west.toml config/ap-south.toml config/sa-east.toml")
        .await
        .ends(&[0]);
    spare.cluster.start().await.unwrap();
    spare.cluster.create_database(DATABASE).await.unwrap();
    section
        .run_everywhere(
            "onceway store init --config config/sa-east.toml",
            "sa-east",
            &["us-east", "eu-west", "ap-south"],
        )
        .await;
    for region in &fleet.regions {
        region.act(Action::Stop, Part::Gateway).await.unwrap();
        region.act(Action::Start, Part::Gateway).await.unwrap();
        until("the gateway to serve again", async || {
            us.operate(&["region", "status", region.name.as_str()]).await.unwrap().status.success()
        })
        .await;
    }
    spare.act(Action::Start, Part::Gateway).await.unwrap();
    for region in &fleet.regions {
        until("the new region to be up everywhere", async || shows_up(region).await).await;
    }
    section.run("onceway status ").await.ends(&[0]).shows("\nsa-east ");
    let plan = section.run("onceway ring plan").await;
    plan.ends(&[0]).shows("regions that join");
    let (_, epoch) = plan.text.split_once("compared with epoch ").unwrap();
    let epoch: String = epoch.chars().take_while(char::is_ascii_digit).collect();
    section.put("--expect-epoch 7", format!("--expect-epoch {epoch}"));
    section.run("onceway ring apply").await.ends(&[0]).shows("Nothing was changed");
    section.run_again("onceway ring apply").await.shows("in force: epoch");
    section.run("until onceway region status sa-east").await.ends(&[0]).shows("serving");
    let plan = us.run(&["ring", "plan"]).await.unwrap();
    assert!(String::from_utf8_lossy(&plan.stdout).contains("nothing would change"), "{plan:?}");
    section.end();
}
