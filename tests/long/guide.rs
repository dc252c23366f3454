//! `deploy/GUIDE.md`, typed line by line into four machines: a reader's own, and one for each of
//! three regions with a Postgres of its own.
//!
//! One time of the reference files differs: before its keys come home, a region has to be well for
//! five seconds instead of a minute, unless ONCEWAY_GUIDE is `exact`. Two programs are replaced at
//! the desk (`guide/desk.sh`): cargo, whose line is a step of `.ci/nightly`, and scp.

mod book;
mod machines;

use crate::support::*;
use book::{Block, blocks, unlike};
use machines::{CommandOutput, Machines};
use onceway_lab::janitor::Janitor;
use onceway_lab::scratch;

const GUIDE: &str = include_str!("../../deploy/GUIDE.md");

fn wrong(block: &Block, machine: &str, said: &CommandOutput) -> Vec<String> {
    let differs = if block.shown.is_empty() { None } else { unlike(&block.shown, &said.text) };
    let all = said.failed.iter().cloned().chain(differs);
    let place = format!("deploy/GUIDE.md:{} on {machine}", block.line);
    all.map(|what| format!("{place}: {what}\n{}\nsaid\n{}", block.commands, said.text)).collect()
}

#[test]
fn the_guide_alone_sets_up_three_regions() {
    let _beside = run(beside());
    let guide = blocks(GUIDE);
    assert!(guide.len() > 20, "only {} blocks are typed", guide.len());
    let folder = scratch::create("onceway-guide").unwrap();
    let _janitor = run(async { Janitor::spawn(&program(), &folder, true).unwrap() });
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
fn nightly_runs_the_build_that_the_guide_names() {
    const BUILD: &str = "cargo build --release --locked -p onceway --features jemalloc";
    assert!(GUIDE.contains(&format!("\n{BUILD}\n")) && include_str!("guide/desk.sh").contains(&BUILD[6..]));
    assert!(include_str!("../../.ci/nightly").contains(&format!(" {BUILD}; }}")), "nobody runs {BUILD:?}");
}
