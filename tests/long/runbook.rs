//! Every command of `deploy/RUNBOOK.md`, run as written, against three real regions in its
//! section's situation.
//!
//! `runbook/book.rs` reads the sections and runs their lines; the other files produce the
//! situations. The short form plays the sections of [`SHORT`]; `ONCEWAY_RUNBOOK=all cargo test
//! --test long runbook::` plays all of them. It must not run a command of its own if the runbook
//! has one.

mod anew;
mod book;
mod keys;
mod losses;
mod password;
mod planned;
mod slots;

use crate::support::*;
use book::{Book, Desk};

/// Played by itself, because its regions begin with the version before.
const UPGRADE: &str = "onceway upgrade";
const PASSWORD: &str = "Rotate the database's password";
/// The order of the sections: each leaves three regions that serve.
const ALL: [&str; 19] = [
    UPGRADE,
    "Planned maintenance",
    "Postgres minor upgrade",
    PASSWORD,
    "Requests fail",
    "Requests are slow",
    "Stuck key",
    "Suspected double charge",
    "Certificate rotation",
    "Replacing the authority",
    "Refused peer",
    "Poisoned register",
    "Lost slot",
    "Disk filling from a dead subscriber",
    "Region dies",
    "Region returns",
    "Postgres major upgrade",
    "Add a region",
    "Removing a region",
];
/// The sections of the short form.
const SHORT: [&str; 9] = [
    "Planned maintenance",
    "Postgres minor upgrade",
    PASSWORD,
    "Stuck key",
    "Suspected double charge",
    "Certificate rotation",
    "Replacing the authority",
    "Poisoned register",
    "Removing a region",
];

/// Commands outside of the runbook's blocks that cannot be run here, or are only named.
const NOT_RUN: [(&str, &str); 6] = [
    ("kubectl -n onceway rollout restart deployment/onceway", "there is no Kubernetes here"),
    ("systemctl restart onceway", "there is no systemd here"),
    ("onceway status --json", "named, for a report of a bug that is not here"),
    ("onceway store init", "named, and run with its options in the blocks"),
    ("onceway ring plan", "named, and run with its options in the blocks"),
    ("onceway audit compare", "named, and run with its options in the blocks"),
];

async fn play(title: &str, fleet: &Deployment, desk: &Desk) {
    let section = desk.open(title);
    match title {
        UPGRADE => planned::program_upgrade(section, fleet).await,
        "Planned maintenance" => planned::maintenance(section, fleet).await,
        "Postgres minor upgrade" => planned::minor_upgrade(section, fleet).await,
        PASSWORD => password::rotated(section, fleet).await,
        "Certificate rotation" => planned::certificates(section, fleet).await,
        "Replacing the authority" => planned::authority(section, fleet).await,
        "Refused peer" => planned::refused(section, fleet).await,
        "Poisoned register" => losses::poisoned(section, fleet).await,
        "Requests fail" => keys::fail(section, fleet).await,
        "Requests are slow" => keys::slow(section, fleet).await,
        "Stuck key" => keys::stuck(section, fleet).await,
        "Suspected double charge" => keys::double(section, fleet).await,
        "Lost slot" => slots::lost(section, fleet).await,
        "Disk filling from a dead subscriber" => slots::filling(section, fleet).await,
        "Region dies" => losses::dies(section, fleet).await,
        "Region returns" => losses::returns(section, fleet).await,
        "Postgres major upgrade" => anew::major_upgrade(section, fleet).await,
        "Add a region" => anew::added(section, fleet).await,
        "Removing a region" => {
            if !anew::is_in(fleet).await {
                anew::added(desk.open("Add a region"), fleet).await;
            }
            anew::removed(section, fleet).await;
        }
        other => panic!("no test plays {other:?}"),
    }
}

#[test]
fn every_runbook_command_is_played_or_listed() {
    let book = Book::read();
    let mut titles = book.titles();
    titles.sort_unstable();
    let mut all = ALL.to_vec();
    all.sort_unstable();
    assert_eq!(titles, all, "a new section is entered above, with its situation");
    // A command outside of blocks is one of a block's commands, or listed with a reason.
    for span in book.spans() {
        let listed = NOT_RUN.iter().any(|(command, _)| *command == span);
        let run = book.lines().any(|line| line.contains(&span));
        assert!(listed || run, "`{span}` is neither run nor listed");
    }
    for (command, why) in NOT_RUN {
        assert!(
            book.spans().contains(&command.to_owned()) && !why.is_empty(),
            "{command} is not there any more"
        );
    }
}

#[test]
fn each_runbook_section_does_what_it_says() {
    let titles = match std::env::var("ONCEWAY_RUNBOOK").as_deref() {
        Ok("all") => ALL.to_vec(),
        Ok(one) => ALL.into_iter().filter(|title| one.split(',').any(|name| name == *title)).collect(),
        Err(_) => SHORT.to_vec(),
    };
    assert!(!titles.is_empty(), "ONCEWAY_RUNBOOK is all, or names sections, separated by commas");
    let (apart, titles): (Vec<&str>, Vec<&str>) = titles.into_iter().partition(|title| *title == UPGRADE);
    run(async {
        let _beside = beside().await;
        let failover =
            Some("\n[failover]\nlease = \"3s\"\nfloor = \"1s\"\nstable_for = \"100ms\"\n".to_owned());
        let rtt = Duration::from_millis(5);
        let (program, port_base) = (program(), port_base());
        let mut options = Options { program, port_base, rtt, failover, ..Options::default() };
        for title in apart {
            let fleet = Deployment::start(&options, &|_| {}).await.expect("three regions start");
            at_the_desk(fleet, &[title]).await;
        }
        if titles.is_empty() {
            return;
        }
        options.spare = titles.iter().any(|title| ["Add a region", "Removing a region"].contains(title));
        let fleet = Deployment::start(&options, &|_| {}).await.expect("three regions start");
        at_the_desk(fleet, &titles).await;
    });
}

async fn at_the_desk(fleet: Deployment, titles: &[&str]) {
    let desk = Desk::set_up(&fleet);
    desk.preamble(&fleet.regions[0]).await;
    for title in titles {
        let began = Instant::now();
        play(title, &fleet, &desk).await;
        eprintln!("{title}: {:.1} s", began.elapsed().as_secs_f64());
    }
    fleet.shut_down().await.unwrap();
}
