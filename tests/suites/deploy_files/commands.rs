//! Every command line of onceway in the documents is one that the built program takes.
//!
//! A command is run with `--help` at its end: the program parses the words before it, refuses
//! unknown ones, and does nothing. The usage line of that help names the required words.

use super::{files_below, onceway, text, top};
use crate::support::documents::pages;
use crate::support::*;

#[derive(Debug)]
struct Line {
    place: String,
    words: Vec<String>,
    /// True in a block, which readers type as it is. Elsewhere a command may be only named.
    whole: bool,
}

fn lines() -> Vec<Line> {
    let files: BTreeSet<String> = files_below("deploy").into_iter().chain(pages()).collect();
    let mut found = Vec::new();
    for file in files {
        let Ok(text) = String::from_utf8(fs::read(top(&file)).unwrap()) else { continue };
        for (index, part) in text.split("```").enumerate() {
            // Only Markdown has fences, and blocks are between them.
            match (index % 2 == 1, part.starts_with("sh")) {
                (true, true) => found.extend(in_block(&file, part)),
                (true, false) => {}
                (false, _) => found.extend(in_prose(&file, part)),
            }
        }
        let exec =
            text.lines().filter_map(|line| line.strip_prefix("Exec")?.split_once("=/usr/local/bin/onceway "));
        found.extend(exec.map(|(_, rest)| Line { place: file.clone(), words: words(rest), whole: true }));
    }
    found
}

fn in_block(file: &str, block: &str) -> Vec<Line> {
    let mut found = Vec::new();
    for line in block.lines().skip(1).collect::<Vec<_>>().join("\n").replace("\\\n", " ").lines() {
        for command in words(line).split(|word| ["|", "&&", ";", ">", "do", "done"].contains(&word.as_str()))
        {
            let is_before =
                |word: &&String| ["until", "while", "if"].contains(&word.as_str()) || word.contains('=');
            let mut command: Vec<String> = command.iter().skip_while(is_before).cloned().collect();
            let at = command.iter().position(|word| word == "--");
            match (command.first().map(String::as_str), at) {
                // Another package's program is not onceway.
                (Some("cargo"), Some(_)) if command.iter().any(|word| word == "-p") => command.clear(),
                (Some("cargo"), Some(at)) => {
                    command[at] = "onceway".to_owned();
                    command.drain(..at);
                }
                (Some("runuser"), Some(at)) => drop(command.drain(..=at)),
                _ => {}
            }
            if command.first().is_some_and(|first| first == "onceway") {
                let (place, words) = (format!("{file}: {line}"), command.split_off(1));
                found.push(Line { place, words, whole: true });
            }
        }
    }
    found
}

fn in_prose(file: &str, prose: &str) -> Vec<Line> {
    let spans = prose.split('`').skip(1).step_by(2);
    let spans = spans.map(|span| span.split_whitespace().collect::<Vec<_>>().join(" "));
    let line = |span: String| {
        let words = words(span.strip_prefix("onceway ")?);
        Some(Line { place: format!("{file}: `{span}`"), words, whole: false })
    };
    spans.filter_map(line).collect()
}

/// A line as a shell splits it, as far as needed: quotes, comments, and the ends of commands.
fn words(line: &str) -> Vec<String> {
    let (mut all, mut word, mut quote) = (Vec::new(), None::<String>, None);
    let mut letters = line.chars().peekable();
    while let Some(letter) = letters.next() {
        match (letter, quote) {
            (end, Some(begin)) if end == begin => quote = None,
            (inner, Some(_)) => word.get_or_insert_default().push(inner),
            ('\'' | '"', None) => {
                quote = Some(letter);
                word.get_or_insert_default();
            }
            ('#', None) if word.is_none() => break,
            (';' | '|' | '>' | '&', None) => {
                all.extend(word.take());
                let doubled = letters.next_if_eq(&'&').is_some();
                all.push(if doubled { "&&".to_owned() } else { letter.to_string() });
            }
            (space, None) if space.is_whitespace() => all.extend(word.take()),
            (other, None) => word.get_or_insert_default().push(other),
        }
    }
    all.extend(word);
    all
}

fn value_for(word: &str) -> String {
    match word {
        "REGION" | "NAME" => "eu-west",
        "N" => "7",
        "SPAN" => "10m",
        other => other,
    }
    .to_owned()
}

fn help(line: &Line) -> Result<String, String> {
    // Dots stand for a value after a flag, and for more of the same elsewhere.
    let before = std::iter::once("").chain(line.words.iter().map(String::as_str));
    let given =
        line.words.iter().zip(before).filter(|(word, before)| *word != "..." || before.starts_with("--"));
    let given = given.map(|(word, _)| word).filter(|word| *word != "--help");
    let output = onceway().args(given.map(|word| value_for(word))).arg("--help").output().unwrap();
    match output.status.success() {
        true => Ok(String::from_utf8(output.stdout).unwrap()),
        false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
    }
}

fn lacking(line: &Line, help: &str) -> Vec<String> {
    let usage = help.lines().find_map(|line| line.strip_prefix("Usage: onceway ")).unwrap_or_default();
    let mut needed = usage.to_owned();
    while let (Some(open), Some(close)) = (needed.find('['), needed.find(']')) {
        needed.replace_range(open..=close, "");
    }
    let takes = |flag: &str| {
        let option = help.lines().map(str::trim).find(|line| {
            line.starts_with(&format!("{flag} ")) || line.starts_with(&format!("{flag}=")) || *line == flag
        });
        option.is_some_and(|line| line.contains('<'))
    };
    let (mut flags, mut places, mut value_of) = (Vec::new(), Vec::new(), None::<String>);
    for word in &line.words {
        if let Some(flag) = word.strip_prefix("--") {
            flags.push(format!("--{flag}"));
            value_of = takes(word).then(|| word.clone());
        } else if value_of.take().is_none() {
            places.push(word.clone());
        }
    }
    let (mut lacking, mut wanted, mut after_flag) = (Vec::new(), 0, false);
    for word in needed.split_whitespace() {
        match word.starts_with("--") {
            true if !flags.iter().any(|flag| flag == word) => lacking.push(word.to_owned()),
            true => {}
            false if after_flag && word.starts_with('<') => {}
            false => wanted += 1,
        }
        after_flag = word.starts_with("--");
    }
    if places.len() < wanted {
        lacking.push(format!("{} of {wanted} words: {usage}", places.len()));
    }
    lacking
}

#[test]
fn every_command_line_in_the_documents_exists() {
    let mut asked: BTreeMap<Vec<String>, Result<String, String>> = BTreeMap::new();
    let (mut wrong, mut whole) = (Vec::new(), 0);
    for line in lines() {
        // The text means the program as such, or any command.
        if line.words.first().is_none_or(|word| word == "COMMAND") {
            continue;
        }
        whole += usize::from(line.whole);
        match asked.entry(line.words.clone()).or_insert_with(|| help(&line)) {
            Err(said) => wrong.push(format!("{}\n    {said}", line.place)),
            Ok(help) if line.whole => {
                let lacking = lacking(&line, help).into_iter();
                wrong.extend(lacking.map(|what| format!("{}\n    lacks {what}", line.place)));
            }
            Ok(_) => {}
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(whole > 80, "only {whole} command lines were found: are blocks still marked as sh?");
}

#[test]
fn a_command_that_does_not_exist_is_found() {
    let line = |text: &str| {
        let [line] = <[Line; 1]>::try_from(in_block("x", &format!("sh\n{text}\n"))).expect("one command");
        line
    };
    for (text, what) in [
        ("onceway rergion drain eu-west", "unrecognized subcommand"),
        ("until onceway region status us --forever; do sleep 1; done", "unexpected argument '--forever'"),
        ("x=1 onceway audit --days a", "invalid value 'a'"),
        ("cargo run -- demo --exitt", "unexpected argument '--exitt'"),
        ("runuser -u onceway -- onceway witness --innit", "unexpected argument '--innit'"),
    ] {
        let said = help(&line(text)).unwrap_err();
        assert!(said.contains(what), "{text}: {said}");
    }
    for (text, what) in [
        ("onceway store reseed --config a.toml # --from b", "--from"),
        ("onceway takeover eu-west", "--reason"),
        ("onceway key show acme", "3 of 4 words"),
        ("onceway check", "1 of 2 words"),
    ] {
        let line = line(text);
        let lacking = lacking(&line, &help(&line).unwrap());
        assert!(lacking.iter().any(|one| one.contains(what)), "{text}: {lacking:?}");
    }
    let prose = in_prose("x", "as `onceway\n  sttore init` does");
    assert!(help(&prose[0]).unwrap_err().contains("unrecognized subcommand"));
}

/// The parts of each section of the runbook, in this order.
const PARTS: [&str; 5] = [
    "**How you notice.**",
    "**What is true meanwhile.**",
    "**What to do.**",
    "**How you know that it is over.**",
    "**What not to do.**",
];

#[test]
fn each_runbook_section_has_all_its_parts() {
    let text = text("deploy/RUNBOOK.md");
    for section in text.split("\n## ").skip(1) {
        let places: Vec<Option<usize>> = PARTS.iter().map(|part| section.find(part)).collect();
        assert!(places.iter().all(Option::is_some) && places.is_sorted(), "{places:?} in\n{section}");
        assert!(section.contains("```sh"), "no command in\n{section}");
    }
}

#[test]
fn the_runbook_names_lines_that_the_product_shows() {
    let documented = text("deploy/RUNBOOK.md") + &text("deploy/postgres/README.md");
    // A sentence goes on in the next line.
    let documented = documented.split_whitespace().collect::<Vec<_>>().join(" ");
    let codes = ["home-unavailable", "store-unavailable", "outcome-unknown", "in-progress"];
    let codes = codes.map(|code| (code, "gateway/request/problems.rs"));
    let lines = [
        ("LOST: its keys run elsewhere", "cli/authority.rs"),
        ("sealed: complete, comes back by itself", "cli/authority.rs"),
        ("sealed: its upstream is sick", "cli/authority.rs"),
        ("NEEDS AN OPERATOR", "cli/authority.rs"),
        ("the store went back", "gateway/upkeep/heartbeat.rs"),
        ("the store's new login is in use", "adapters/postgres/login.rs"),
        ("it uses another address", "adapters/postgres/provision/mesh.rs"),
    ];
    for (line, source) in lines.into_iter().chain(codes) {
        assert!(documented.contains(line), "the documents do not say {line:?} any more: take it out here");
        assert!(text(&format!("src/{source}")).contains(line), "{source} does not say {line:?}");
    }
}

fn peer_table() -> String {
    let head = "| message | what it says | region | joining | former | witness | stranger | for itself only |\n|---|---|---|---|---|---|---|---|\n";
    let row = |message: &Kind| {
        let cells =
            Sender::ALL.map(|sender| if message.list_senders().contains(&sender) { "yes" } else { "-" });
        let own = if message.is_of_its_sender() { "yes" } else { "-" };
        format!("| `{}` | {} | {} | {own} |\n", message.name(), message.about(), cells.join(" | "))
    };
    head.to_owned() + &Kind::ALL.iter().map(row).collect::<String>()
}

#[test]
fn the_peer_document_shows_the_table_of_the_code() {
    let document = text("deploy/PEERS.md");
    assert!(document.contains(&peer_table()), "deploy/PEERS.md should have\n{}", peer_table());
}
