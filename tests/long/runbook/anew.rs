//! A store that is made anew, as in a major upgrade of Postgres, and a new region. The upgrade gets
//! an empty server of the same version, because no other is here.

use crate::runbook::book::Section;
use crate::support::*;

/// Plays `store init` for an empty server, with the generation that was printed.
pub async fn new_store(section: &mut Section<'_>, fleet: &Deployment, printed: &str) {
    let region = &fleet.regions[1];
    let (_, rest) = printed.split_once("generation ").unwrap_or_else(|| panic!("no generation in {printed}"));
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    region.act(Action::Kill, Part::Both).await.unwrap();
    region.cluster.make_anew().await.unwrap();
    region.cluster.start().await.unwrap();
    region.cluster.create_database(DATABASE).await.unwrap();
    let file = fleet.dir().join(format!("{}.toml", region.name));
    let text = fs::read_to_string(&file).unwrap();
    let without: Vec<&str> = text.lines().filter(|line| !line.starts_with("generation = ")).collect();
    let text = without.join("\n").replacen("[store]\n", &format!("[store]\ngeneration = {digits}\n"), 1);
    fs::write(&file, text).unwrap();
    let [own, others] =
        ["eu-west", "us-east"].map(|name| format!("onceway store init --config config/{name}.toml"));
    section.run_both(&own, &others, "ap-south").await;
}

pub async fn major_upgrade(mut section: Section<'_>, fleet: &Deployment) {
    let eu = &fleet.regions[1];
    section.there(eu);
    section.run_again("onceway region drain eu-west --reason").await;
    section.well("onceway jobs --admin", &[]).await;
    eu.act(Action::Stop, Part::Gateway).await.unwrap();
    let printed = section.run_again("onceway region rebuild eu-west --reason").await;
    new_store(&mut section, fleet, &printed.text).await;
    section.run_again("onceway store check --config config/eu-west.toml").await;
    eu.act(Action::Start, Part::Gateway).await.unwrap();
    section.run_again("onceway region resume eu-west").await;
    section.well("until onceway region status eu-west", &["serving"]).await;
    section.end();
}

pub async fn added(mut section: Section<'_>, fleet: &Deployment) {
    let spare = fleet.spare.as_ref().expect("machines for one more region");
    let us = &fleet.regions[0];
    // The fleet has made its certificate already, so the test deletes it.
    for name in ["sa-east.pem", "sa-east.key"] {
        fs::remove_file(fleet.dir().join("certificates").join(name)).unwrap();
    }
    section.well("onceway certs --out certificates --region sa-east", &[]).await;
    write_files(fleet, 4);
    let check =
        "onceway check config/us-east.toml config/eu-west.toml config/ap-south.toml config/sa-east.toml";
    section.well(check, &[]).await;
    spare.cluster.start().await.unwrap();
    spare.cluster.create_database(DATABASE).await.unwrap();
    let others = ["us-east", "eu-west", "ap-south"];
    section.run_everywhere("onceway store init --config config/sa-east.toml", "sa-east", &others).await;
    restart_all(fleet).await;
    spare.act(Action::Start, Part::Gateway).await.unwrap();
    for region in &fleet.regions {
        until("the new region, which has no share yet, to be up everywhere", async || {
            let printed = out(&region.operate(&["status"]).await.unwrap());
            printed.lines().any(|line| line.split_whitespace().take(3).eq(["sa-east", "-", "yes"]))
        })
        .await;
    }
    section.well("onceway status ", &["\nsa-east "]).await;
    may_not_say(fleet, Sender::Joining).await;
    section.plan_and_apply("--expect-epoch 7").await.shows("regions that join");
    section.well("until onceway region status sa-east", &["serving"]).await;
    let plan = us.run(&["ring", "plan"]).await.unwrap();
    assert!(out(&plan).contains("nothing would change"), "{plan:?}");
    section.end();
}

/// Writes the ring and the files of the first so many regions, each with its current generation.
fn write_files(fleet: &Deployment, members: usize) {
    let names: Vec<_> = fleet.all().take(members).map(|region| region.name.clone()).collect();
    let all: Vec<usize> = (0..members).collect();
    let ring = files::ring(&names, &vec![1; members], files::FAILOVER);
    fs::write(fleet.dir().join("ring.toml"), ring).unwrap();
    for (number, name) in names.iter().enumerate() {
        let old = fleet.dir().join(format!("{name}.toml"));
        let kept = fs::read_to_string(&old).unwrap();
        fleet.write_file(number, &all).unwrap();
        if let Some(line) = kept.lines().find(|line| line.starts_with("generation = ")) {
            let text = fs::read_to_string(&old).unwrap();
            fs::write(&old, text.replacen("[store]\n", &format!("[store]\n{line}\n"), 1)).unwrap();
        }
    }
}

async fn restart_all(fleet: &Deployment) {
    for region in &fleet.regions {
        restart(region).await;
        operated(&fleet.regions[0], &["region", "status", region.name.as_str()]).await;
    }
}

fn identity(fleet: &Deployment, region: &Region) -> PeerIdentity {
    let files = files_in(&fleet.dir().join("certificates"), &region.name);
    PeerIdentity::load(region.name.clone(), &files).unwrap()
}

/// The spare region's real certificate, at each real gateway of the ring: what its role may not say
/// is refused and counted, and the view stays.
async fn may_not_say(fleet: &Deployment, sender: Sender) {
    let spare = fleet.spare.as_ref().expect("machines for one more region");
    let identity = identity(fleet, spare);
    for region in &fleet.regions {
        let name = format!("onceway_peer_refusals_total{{sender=\"{}\"}}", sender.word());
        let refusals = async || series(region, &name).await.unwrap_or(0.0);
        let (before, members) = (refusals().await, voters(region).await);
        let at = said::listens(fleet, region);
        let count = said::forbidden(&identity, sender, &region.name, &at).await;
        let after = refusals().await;
        assert!(count > 10 && after >= before + count as f64, "{count} refused; {before}, then {after}");
        let status = status(region).await;
        assert!(status["epoch"].as_u64().unwrap() < said::POISONED, "{status}");
        assert_eq!(voters(region).await, members);
    }
}

async fn voters(region: &Region) -> Vec<String> {
    let status = status(region).await;
    let voters = status["authority"]["voters"].as_array().cloned().unwrap_or_default();
    voters.iter().filter_map(|voter| voter.as_str().map(str::to_owned)).collect()
}

async fn is_in(fleet: &Deployment) -> bool {
    voters(&fleet.regions[0]).await.contains(&"sa-east".to_owned())
}

pub async fn removed(mut section: Section<'_>, fleet: &Deployment) {
    if !is_in(fleet).await {
        added(section.desk().open(crate::runbook::ADDED), fleet).await;
    }
    let spare = fleet.spare.as_ref().expect("machines for one more region");
    until("it to vote", async || is_in(fleet).await).await;
    let gone = identity(fleet, spare);
    section.run_again("onceway region drain sa-east").await.shows("sa-east is drained");
    write_files(fleet, 3);
    section.plan_and_apply("--expect-epoch 9").await.shows("regions that leave");
    until("it to vote no more", async || !is_in(fleet).await).await;
    restart_all(fleet).await;
    may_not_say(fleet, Sender::Former).await;
    section.run_until("onceway store init --config config/us-east.toml  ", "all its rows are here").await;
    for region in &fleet.regions[1..] {
        until("its rows to be here", async || {
            let said = region.run(&["store", "init"]).await.unwrap();
            out(&said).contains("all its rows are here") || said.status.success()
        })
        .await;
    }
    spare.act(Action::Kill, Part::Both).await.unwrap();
    section.well("onceway certs revoke sa-east --out certificates", &["sa-east is revoked"]).await;
    // The fleet shares one file.
    for region in &fleet.regions {
        let refused = async || said::refusal(&gone, fleet, region).await.contains("evoked");
        until("its certificate to be refused", refused).await;
    }
    let init = "onceway store init --config config/us-east.toml --wait";
    section.run_everywhere(init, "us-east", &["eu-west", "ap-south"]).await;
    all_serve(fleet).await;
    section.end();
}
