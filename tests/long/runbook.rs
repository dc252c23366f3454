//! Every command of `deploy/RUNBOOK.md`, run as written, against three real regions in its
//! section's situation, which the other files produce.
//!
//! The short form plays the marked sections of [`ALL`]; `ONCEWAY_RUNBOOK=all cargo test --test long
//! runbook::` plays all of them.

mod anew;
mod book;
mod keys;
mod losses;
mod planned;

use crate::support::*;
use book::{Book, Desk, Section};

/// Played by itself, because its regions begin with the version before.
const UPGRADE: &str = "onceway upgrade";
type Play = for<'a> fn(Section<'a>, &'a Deployment) -> Pin<Box<dyn Future<Output = ()> + 'a>>;
/// The sections in order: each leaves three regions that serve. True for the short form's.
const ALL: [(&str, bool, Play); 19] = [
    (UPGRADE, false, |section, fleet| Box::pin(planned::program_upgrade(section, fleet))),
    ("Planned maintenance", true, |section, fleet| Box::pin(planned::maintenance(section, fleet))),
    ("Postgres minor upgrade", true, |section, fleet| Box::pin(planned::minor_upgrade(section, fleet))),
    ("Rotate the database's password", true, |section, fleet| Box::pin(planned::rotated(section, fleet))),
    ("Requests fail", false, |section, fleet| Box::pin(keys::fail(section, fleet))),
    ("Requests are slow", false, |section, fleet| Box::pin(keys::slow(section, fleet))),
    ("Stuck key", true, |section, fleet| Box::pin(keys::stuck(section, fleet))),
    ("Suspected double charge", true, |section, fleet| Box::pin(keys::double(section, fleet))),
    ("Certificate rotation", true, |section, fleet| Box::pin(planned::certificates(section, fleet))),
    ("Replacing the authority", true, |section, fleet| Box::pin(planned::authority(section, fleet))),
    ("Refused peer", false, |section, fleet| Box::pin(planned::refused(section, fleet))),
    ("Poisoned register", true, |section, fleet| Box::pin(losses::poisoned(section, fleet))),
    ("Lost slot", false, |section, fleet| Box::pin(losses::slot_lost(section, fleet))),
    ("Disk filling from a dead subscriber", false, |section, fleet| {
        Box::pin(losses::filling(section, fleet))
    }),
    ("Region dies", false, |section, fleet| Box::pin(losses::dies(section, fleet))),
    ("Region returns", false, |section, fleet| Box::pin(losses::returns(section, fleet))),
    ("Postgres major upgrade", false, |section, fleet| Box::pin(anew::major_upgrade(section, fleet))),
    (ADDED, false, |section, fleet| Box::pin(anew::added(section, fleet))),
    (REMOVED, true, |section, fleet| Box::pin(anew::removed(section, fleet))),
];
const ADDED: &str = "Add a region";
const REMOVED: &str = "Removing a region";

/// Commands outside of the runbook's blocks that cannot be run here, or are only named.
const NOT_RUN: [(&str, &str); 6] = [
    ("kubectl -n onceway rollout restart deployment/onceway", "there is no Kubernetes here"),
    ("systemctl restart onceway", "there is no systemd here"),
    ("onceway status --json", "named, for a report of a bug that is not here"),
    ("onceway store init", "named, and run with its options in the blocks"),
    ("onceway ring plan", "named, and run with its options in the blocks"),
    ("onceway audit compare", "named, and run with its options in the blocks"),
];

#[test]
fn every_runbook_command_is_played_or_listed() {
    let book = Book::read();
    let mut titles = book.titles();
    titles.sort_unstable();
    let mut all = ALL.map(|(title, ..)| title);
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
    let asked = std::env::var("ONCEWAY_RUNBOOK").ok();
    let wanted = |(title, short, _): &(&str, bool, Play)| match asked.as_deref() {
        None => *short,
        Some("all") => true,
        Some(some) => some.split(',').any(|name| name == *title),
    };
    let plays: Vec<_> = ALL.into_iter().filter(wanted).collect();
    assert!(!plays.is_empty(), "ONCEWAY_RUNBOOK is all, or names sections, separated by commas");
    let (apart, plays): (Vec<_>, Vec<_>) = plays.into_iter().partition(|(title, ..)| *title == UPGRADE);
    run(async {
        let _beside = beside().await;
        let mut options = options(Duration::from_millis(5), None, FAILOVER);
        if !apart.is_empty() {
            let fleet = Deployment::start(&options, &|_| {}).await.expect("three regions start");
            at_the_desk(fleet, &apart).await;
        }
        if plays.is_empty() {
            return;
        }
        options.spare = plays.iter().any(|(title, ..)| [ADDED, REMOVED].contains(title));
        let fleet = Deployment::start(&options, &|_| {}).await.expect("three regions start");
        at_the_desk(fleet, &plays).await;
    });
}

async fn at_the_desk(fleet: Deployment, plays: &[(&str, bool, Play)]) {
    let desk = Desk::set_up(&fleet);
    desk.preamble(&fleet.regions[0]).await;
    for (title, _, play) in plays {
        let began = Instant::now();
        play(desk.open(title), &fleet).await;
        eprintln!("{title}: {:.1} s", began.elapsed().as_secs_f64());
    }
    fleet.shut_down().await.unwrap();
}
