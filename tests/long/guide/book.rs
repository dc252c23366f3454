//! The guide as text: its blocks of commands in order, each with the machines that it is typed at
//! and the output after it, a block of text.
//!
//! The machines are named before a block, in bold letters at the begin of a paragraph: "**On
//! us-east**", "**On every machine**", "**On your machine**". Any other block is a panic.

pub const REGIONS: [&str; 3] = ["us-east", "eu-west", "ap-south"];
pub const DESK: &str = "desk";

#[derive(Debug)]
pub struct Block {
    /// The line of the guide that it begins on.
    pub line: usize,
    pub at: Vec<&'static str>,
    pub commands: String,
    /// The output at each of them; empty: any.
    pub shown: Vec<String>,
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

/// The blocks of a text. Panics if it is not made as the header says.
pub fn blocks(text: &str) -> Vec<Block> {
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

/// True if a line is the one shown, in which `...` stands for anything and a run of blanks for any
/// other.
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

/// The first line that was shown and not seen, or seen and not shown. All must appear in order. A
/// line of dots stands for any number of lines.
pub fn unlike(shown: &[String], seen: &str) -> Option<String> {
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
