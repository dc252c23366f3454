//! `deploy/GUIDE.md`, typed line by line into four machines: a reader's own, and one for each of
//! three regions with a Postgres of its own.
//!
//! The reference files are used as they are, with their ports and addresses. One time differs:
//! before its keys come home, a region has to be well for five seconds instead of a minute, unless
//! ONCEWAY_GUIDE is `exact`. Two programs are replaced at the desk (`guide/desk.sh`): cargo, whose
//! line is a step of `.ci/nightly`, and scp. It must not type anything that the guide does not say,
//! nor leave out a line of it.

mod book;
mod machines;

use std::time::Instant;

use crate::support::{self, program};
use book::{Block, REGIONS, blocks, unlike};
use machines::{CommandOutput, Machines};
use onceway::fleet::janitor::Janitor;
use onceway::fleet::scratch;

const GUIDE: &str = include_str!("../../deploy/GUIDE.md");

/// The differences between a block's expected and real result at a machine.
fn wrong(block: &Block, machine: &str, said: &CommandOutput) -> Vec<String> {
    let differs = if block.shown.is_empty() { None } else { unlike(&block.shown, &said.text) };
    let all = said.failed.iter().cloned().chain(differs);
    let place = format!("deploy/GUIDE.md:{} on {machine}", block.line);
    all.map(|what| format!("{place}: {what}\n{}\nsaid\n{}", block.commands, said.text)).collect()
}

#[test]
fn three_regions_by_the_guide_alone() {
    let _beside = support::run(support::beside());
    let guide = blocks(GUIDE);
    assert!(guide.len() > 20, "only {} blocks are typed", guide.len());
    let folder = scratch::create("onceway-guide").unwrap();
    let _janitor = support::run(async { Janitor::spawn(&program(), &folder, true).unwrap() });
    let exact = std::env::var("ONCEWAY_GUIDE").is_ok_and(|how| how == "exact");
    let mut machines = Machines::boot(&folder, &program(), if exact { "60s" } else { "5s" });
    for block in &guide {
        let began = Instant::now();
        for (machine, said) in machines.run(&block.at, &block.commands) {
            let wrong = wrong(block, machine, &said);
            assert!(wrong.is_empty(), "{}", wrong.join("\n"));
        }
        eprintln!("deploy/GUIDE.md:{}: {:.1} s", block.line, began.elapsed().as_secs_f64());
    }
}

#[test]
fn what_is_played_otherwise_is_a_step_of_ci() {
    const BUILD: &str = "cargo build --release --locked -p onceway";
    assert!(GUIDE.contains(&format!("\n{BUILD}\n")) && include_str!("guide/desk.sh").contains(&BUILD[6..]));
    assert!(include_str!("../../.ci/nightly").contains(&format!(" {BUILD}; }}")), "nobody runs {BUILD:?}");
}

#[test]
fn a_guide_is_read_with_its_machines_and_what_is_seen() {
    let text = "# a\n\n**On us-east**, now:\n\n```sh\na\nb\n```\n\n```text\nc ...\n```\n\n```sh\nd\n```\n\n**On every machine**\n\n```sh\ne\n```\n";
    let read = blocks(text);
    let of = |block: &Block| (block.line, block.at.clone(), block.commands.clone(), block.shown.join("|"));
    let all: Vec<_> = read.iter().map(of).collect();
    let here = vec!["us-east"];
    assert_eq!(
        all,
        [
            (5, here.clone(), "a\nb".to_owned(), "c ...".to_owned()),
            (14, here, "d".to_owned(), String::new()),
            (20, REGIONS.to_vec(), "e".to_owned(), String::new()),
        ]
    );
    for strange in [
        "```sh\na\n```\n",
        "**On mars**\n",
        "**On us-east**\n\n```sh\na\n```\n\n```console\nb\n```\n",
        "**On us-east**\n\n```text\nb\n```\n",
        "**On us-east**\n\n```sh\na\n```\n\nx\n\n```text\nb\n```\n",
        "**On us-east**\n\n  ```sh\na\n  ```\n",
    ] {
        assert!(std::panic::catch_unwind(|| blocks(strange)).is_err(), "{strange:?} was taken");
    }
}

#[test]
fn what_is_seen_is_compared_line_by_line() {
    let shown = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
    let seen = "\nstate   ready, runs keys\n\nlease held, 9.5 s left\n  3 201 by us-east\n";
    for same in [
        "state ready, runs keys\nlease held, ... s left\n... 201 by us-east",
        "...\nlease ... left\n...",
        "state ...\n...",
        "...\n3 201 by us-east",
    ] {
        assert_eq!(unlike(&shown(same), seen), None, "{same}");
    }
    for other in [
        "state ready, runs keys",
        "state ready\n...",
        "...\nlease held, 9.5 s left",
        "...\n3 201 by us-east\nlease held, 9.5 s left",
        "...\n... 503 by us-east",
        "state ready, runs keys\n... 201 by us-east",
    ] {
        assert!(unlike(&shown(other), seen).is_some(), "{other}");
    }
}
