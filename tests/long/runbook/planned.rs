//! Planned work: maintenance, a new onceway, a minor upgrade of Postgres, new certificates.
//!
//! The minor upgrade restarts the same Postgres, because no other minor version is here. The old
//! onceway is this one, which speaks only the protocol version before. They must not lose a
//! request, and leave all regions serving.

use crate::runbook::book::{Section, metric};
use crate::support::*;

const SERVING: &str = "onceway_region_serving{member=\"eu-west\"}";

pub async fn maintenance(mut section: Section<'_>, fleet: &Deployment) {
    let eu = &fleet.regions[1];
    section.there(eu);
    section.run("onceway region drain eu-west --dry-run").await.ends(&[0]).shows("Nothing was changed.");
    metric(&fleet.regions[0], SERVING, "1").await;
    section.run_again("onceway region drain eu-west --reason").await.shows("eu-west is drained");
    section.run_until_all("onceway status --admin", &["drained: out until", "in flight  0"]).await;
    section.run("onceway jobs --admin").await.ends(&[0]).shows("no accepted request waits");
    eu.act(Action::Stop, Part::Both).await.unwrap();
    eu.act(Action::Start, Part::Both).await.unwrap();
    section.run_again("onceway region resume eu-west").await.shows("serves again");
    section.run("until onceway region status eu-west").await.ends(&[0]).shows("serving");
    for region in &fleet.regions {
        metric(region, SERVING, "1").await;
    }
    section.end();
}

pub async fn program_upgrade(mut section: Section<'_>, fleet: &Deployment) {
    let [us, eu, ap] = &fleet.regions[..] else { panic!("three regions") };
    section
        .run_everywhere(
            "onceway store init --config config/us-east.toml",
            "us-east",
            &["eu-west", "ap-south"],
        )
        .await;
    section.run_again("onceway region drain eu-west --reason").await.shows("eu-west is drained");
    replace(eu).await;
    section.there(eu);
    section.run_until("onceway status --admin", "version 1, speaks 1-2").await;
    section.run_again("onceway region resume eu-west").await.shows("serves again");
    section.run("until onceway region status eu-west").await.ends(&[0]);
    for region in [us, ap] {
        replace(region).await;
        region.serves().await.unwrap();
    }
    section.run("onceway protocol raise  ").await.ends(&[0]).shows("Nothing was changed.");
    section.run_again("onceway protocol raise --yes").await.shows("protocol version 2 is in force");
    for region in &fleet.regions {
        metric(region, "onceway_protocol_version", "2").await;
        for peer in fleet.regions.iter().filter(|peer| peer.name != region.name) {
            metric(region, &format!("onceway_peer_foreign{{peer=\"{}\"}}", peer.name), "0").await;
        }
        region.serves().await.unwrap();
    }
    section.end();
}

async fn replace(region: &Region) {
    region.act(Action::Stop, Part::Gateway).await.unwrap();
    region.speak(Some("1-2"));
    region.act(Action::Start, Part::Gateway).await.unwrap();
}

pub async fn minor_upgrade(mut section: Section<'_>, fleet: &Deployment) {
    let eu = &fleet.regions[1];
    section.there(eu);
    section.run_again("onceway region drain eu-west --reason").await;
    section.run("psql --command checkpoint").await.ends(&[0]).shows("CHECKPOINT");
    eu.act(Action::Stop, Part::Postgres).await.unwrap();
    eu.act(Action::Start, Part::Postgres).await.unwrap();
    section.run_until("onceway status --admin", "store      open").await;
    section.run_again("onceway store check --config config/eu-west.toml").await;
    section.run_again("onceway region resume eu-west").await;
    section.run("until onceway region status eu-west").await.ends(&[0]);
    section.end();
}

pub async fn certificates(mut section: Section<'_>, fleet: &Deployment) {
    let (eu, dir) = (&fleet.regions[1], fleet.dir());
    section.ask(eu);
    section.run("mkdir next && cp").await.ends(&[0]);
    section
        .run("onceway certs --out next --region eu-west")
        .await
        .ends(&[0])
        .shows("the authority that was there");
    section.run("openssl verify").await.ends(&[0]).shows("OK");
    section.run("openssl x509 -in next/eu-west.pem").await.ends(&[0]).shows("notAfter").shows("DNS:");
    let [desk, live] = [dir.join("desk"), dir.join("certificates")];
    let one = &fleet.regions[1..2];
    let before = taken_over(one).await;
    let old = dir.join("eu-west-before.pem");
    fs::copy(live.join("eu-west.pem"), &old).unwrap();
    in_place(&desk.join("next"), &live, &["eu-west.pem", "eu-west.key"]);
    round_is_over(one, &before).await;
    // The fleet's files have their addresses themselves.
    let environment = desk.join("environment");
    fs::write(&environment, "").unwrap();
    section.put("/etc/onceway/environment", environment.to_str().unwrap());
    let checked = section.run("(set -a; . /etc/onceway/environment; onceway check --strict --serve").await;
    checked.ends(&[0]).hides("No such file");
    section.run("onceway status ").await.ends(&[0]).hides("\nconfig ");
    fs::copy(&old, desk.join("old.pem")).unwrap();
    let all = &fleet.regions;
    let before = taken_over(all).await;
    section
        .run("onceway certs revoke eu-west")
        .await
        .ends(&[0])
        .shows("eu-west is revoked (1 certificates are)");
    round_is_over(all, &before).await;
    section.end();
}

pub async fn authority(mut section: Section<'_>, fleet: &Deployment) {
    let (eu, dir) = (&fleet.regions[1], fleet.dir());
    let [desk, live] = [dir.join("desk"), dir.join("certificates")];
    section.run("onceway certs --out fresh --region us-east eu-west ap-south").await.ends(&[0]);
    section.run("cat certificates/ca.pem fresh/ca.pem > both.pem").await.ends(&[0]);
    let all = &fleet.regions;
    let before = taken_over(all).await;
    fs::copy(desk.join("both.pem"), live.join("ca.pem")).unwrap();
    round_is_over(all, &before).await;
    let own = all.iter().flat_map(|region| [format!("{}.pem", region.name), format!("{}.key", region.name)]);
    let own: Vec<String> = own.collect();
    let before = taken_over(all).await;
    in_place(&desk.join("fresh"), &live, &own.iter().map(String::as_str).collect::<Vec<_>>());
    round_is_over(all, &before).await;
    let before = taken_over(all).await;
    fs::copy(desk.join("fresh/ca.pem"), live.join("ca.pem")).unwrap();
    round_is_over(all, &before).await;
    // The signing key goes with the authority, for a later addition of a region.
    fs::copy(desk.join("fresh/ca.key"), live.join("ca.key")).unwrap();
    // New connections, with nothing but the new files.
    restart(eu).await;
    for region in &fleet.regions {
        region.serves().await.unwrap();
    }
    section.run("onceway status").await.ends(&[0]);
    section.end();
}

/// A certificate that belongs to no region says what it may not, and is revoked.
pub async fn refused(mut section: Section<'_>, fleet: &Deployment) {
    let (us, identity) = (&fleet.regions[0], said::stranger(fleet));
    let ask = async || said::refusal(&identity, fleet, us).await;
    let before = "onceway_peer_refusals_total{sender=\"stranger\"}";
    metric(us, before, "0").await;
    let why = ask().await;
    assert!(why.contains("403"), "{why}");
    metric(us, before, "1").await;
    let log = fs::read_to_string(us.gateway_log()).unwrap();
    assert!(log.lines().any(|line| line.contains("a peer may not say this") && line.contains("mallory")));
    section.ask(us);
    section.run("onceway certs revoke mallory").await.ends(&[0]).shows("mallory is revoked");
    until("its certificate to be refused", async || ask().await.contains("evoked")).await;
    section.run("onceway status").await.ends(&[0]);
    section.end();
}

fn in_place(from: &Path, to: &Path, names: &[&str]) {
    for name in names {
        fs::copy(from.join(name), to.join(name)).unwrap();
    }
}

/// The number of configurations that each gateway has taken over.
pub async fn taken_over(regions: &[Region]) -> Vec<f64> {
    let mut all = Vec::new();
    for region in regions {
        all.push(series(region, "onceway_config_reloads_total{result=\"ok\"}").await.unwrap_or(0.0));
    }
    all
}

/// Waits until these gateways have read the changes, nothing is left to be taken over, and all
/// peers answer.
pub async fn round_is_over(regions: &[Region], before: &[f64]) {
    until("the new files to be read", async || {
        let now = taken_over(regions).await;
        now.iter().zip(before).all(|(now, before)| now > before)
    })
    .await;
    for region in regions {
        metric(region, "onceway_config_current", "1").await;
        region.serves().await.unwrap();
    }
}
