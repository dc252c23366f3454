//! `deploy/GUIDE.md`, typed line by line into four machines: a reader's own, and one per region.
//! Bold letters before a block of commands name its machines; a block of text after it is its
//! output. A region comes home after five seconds instead of a minute, unless ONCEWAY_GUIDE is
//! `exact`. The desk replaces cargo, whose line is a step of `.ci/nightly`, and scp.

mod machines;

use crate::support::*;
use machines::{CommandOutput, Machines};

const GUIDE: &str = include_str!("../../deploy/GUIDE.md");

const REGIONS: [&str; 3] = ["us-east", "eu-west", "ap-south"];
const DESK: &str = "desk";

#[derive(Debug)]
struct Block {
    line: usize,
    at: Vec<&'static str>,
    commands: String,
    shown: Vec<String>,
}

fn machines(bold: &str) -> Option<Vec<&'static str>> {
    match bold {
        "On your machine" => Some(vec![DESK]),
        "On every machine" => Some(REGIONS.to_vec()),
        "On your machine and on every machine" => Some([&[DESK], &REGIONS[..]].concat()),
        one => {
            let name = one.strip_prefix("On ")?;
            REGIONS.iter().find(|region| **region == name).map(|region| vec![*region])
        }
    }
}

fn blocks(text: &str) -> Vec<Block> {
    let fences = text.lines().filter(|line| line.contains("```"));
    assert!(
        fences.clone().all(|line| line.starts_with("```")) && fences.count() % 2 == 0,
        "blocks stand at the margin"
    );
    let (mut blocks, mut at, mut lines) = (Vec::<Block>::new(), None, text.lines().enumerate());
    let mut follows = false;
    while let Some((number, line)) = lines.next() {
        let Some(kind) = line.strip_prefix("```") else {
            if let Some((bold, _)) = line.strip_prefix("**").and_then(|rest| rest.split_once("**")) {
                let found = machines(bold);
                at = Some(found.unwrap_or_else(|| panic!("line {}: whose machine is {bold:?}?", number + 1)));
            }
            follows &= line.is_empty();
            continue;
        };
        let body: Vec<&str> =
            lines.by_ref().map(|(_, line)| line).take_while(|line| *line != "```").collect();
        match kind {
            "sh" => {
                let at = at.clone().unwrap_or_else(|| panic!("line {}: typed where?", number + 1));
                blocks.push(Block { line: number + 1, at, commands: body.join("\n"), shown: Vec::new() });
                follows = true;
            }
            "text" => {
                let block = blocks.last_mut().filter(|block| follows && block.shown.is_empty());
                let block = block.unwrap_or_else(|| panic!("line {}: seen after what?", number + 1));
                block.shown = body.iter().map(|line| (*line).to_owned()).collect();
            }
            other => panic!("line {}: a block of {other:?} is neither typed nor seen", number + 1),
        }
    }
    blocks
}

/// True if a line is the shown one, in which `...` is anything and a run of blanks any other.
fn alike(shown: &str, seen: &str) -> bool {
    let plain = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let (shown, seen) = (plain(shown), plain(seen));
    let Some((first, others)) = shown.split_once("...") else { return shown == seen };
    let (between, last) = others.rsplit_once("...").unwrap_or(("", others));
    let Some(mut rest) = seen.strip_prefix(first) else { return false };
    for part in between.split("...") {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}

/// The first line that differs. All must appear in order; dots are any number of lines.
fn unlike(shown: &[String], seen: &str) -> Option<String> {
    let mut seen = seen.lines().filter(|line| !line.trim().is_empty()).peekable();
    let mut any = false;
    for line in shown.iter().filter(|line| !line.trim().is_empty()) {
        if line.trim() == "..." {
            any = true;
            continue;
        }
        let found =
            if any { seen.find(|seen| alike(line, seen)) } else { seen.next_if(|seen| alike(line, seen)) };
        if found.is_none() {
            return Some(format!("no {line:?}"));
        }
        any = false;
    }
    seen.next().filter(|_| !any).map(|more| format!("{more:?}, which is not shown"))
}

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
