//! Configuration files: whatever stands in one of them, every problem is said in one line that names the file and the line.
//!
//! Neighbours: `tests/config/cases.rs` holds the four good files and the mistakes that users make; here nobody means anything. It
//! must not judge the wording.

#[path = "../config/cases.rs"]
mod cases;

use std::fs;
use std::path::Path;

use cases::{CASES, CREDENTIALS, REGION, RING, ROUTES};
use onceway::config::{Config, Errors, load_credentials, load_ring, load_routes};

use crate::mix::fuzz;

const NAMES: [&str; 4] = ["ring.toml", "routes.toml", "credentials.toml", "region.toml"];
const GOOD: [&str; 4] = [RING, ROUTES, CREDENTIALS, REGION];
const WORDS: &[&[u8]] = &[
    b"\n",
    b"=",
    b"\"",
    b"'",
    b"\"\"\"",
    b"[",
    b"]",
    b"[[",
    b"]]",
    b"{",
    b"}",
    b",",
    b".",
    b"#",
    b"\\",
    b"\\u0000",
    b"-",
    b"0",
    b"-1",
    b"1e9",
    b"nan",
    b"inf",
    b"0x",
    b"18446744073709551616",
    b"true",
    b"1979-05-27",
    b"\"0s\"",
    b"\"9999999999d\"",
    b"[[route]]\n",
    b"[[region]]\n",
    b"[[credential]]\n",
    b"[store]\n",
    b"[peer.addresses]\n",
    b"name = \"x\"\n",
    b"weight = 0\n",
    b"weight = 18446744073709551615\n",
    b"\r",
    b"\0",
    b"\xff",
    b"\xc3\xa4",
    b"path = \"/{x}/*\"\n",
];

/// The good files and those of every case, each after the number of its file: that byte may change as well.
fn texts() -> Vec<Vec<u8>> {
    let good = GOOD.iter().enumerate().map(|(number, text)| (number, (*text).to_owned()));
    let wrong = CASES.iter().filter_map(|(name, from, to, _)| {
        let number = NAMES.iter().position(|file| file.strip_suffix(".toml") == Some(name))?;
        Some((number, GOOD[number].replacen(from, to, 1)))
    });
    good.chain(wrong).map(|(number, text)| [vec![number as u8], text.into_bytes()].concat()).collect()
}

#[test]
fn a_configuration_is_right_or_every_problem_has_its_line() {
    let folder = tempfile::tempdir().unwrap();
    for (name, good) in NAMES.iter().zip(GOOD) {
        fs::write(folder.path().join(name), good).unwrap();
    }
    let texts = texts();
    assert!(texts.len() >= 60);
    let texts: Vec<&[u8]> = texts.iter().map(Vec::as_slice).collect();
    fuzz(&texts, WORDS, |text| {
        let (number, text) =
            text.split_first().map_or((0, text), |(first, rest)| (usize::from(*first) % 4, rest));
        check(folder.path(), number, text);
        fs::write(folder.path().join(NAMES[number]), GOOD[number]).unwrap();
    });
}

fn check(folder: &Path, number: usize, text: &[u8]) {
    let file = folder.join(NAMES[number]);
    fs::write(&file, text).unwrap();
    // Making a ring takes hundreds of times as long as reading a file, so most region files are read beside an empty one.
    let hasty = number != 0 && !text.len().is_multiple_of(64);
    let ring = if hasty { "" } else { RING };
    if number != 0 {
        fs::write(folder.join(NAMES[0]), ring).unwrap();
    }
    let whole = || Config::load_with(&folder.join("region.toml"), &|_| None).map(drop);
    let read = match number {
        0 => load_ring(&file).map(drop),
        1 if hasty => load_routes(&file).map(drop),
        2 if hasty => load_credentials(&file).map(drop),
        _ => whole(),
    };
    let lines = 1 + text.iter().filter(|byte| **byte == b'\n').count();
    for problem in read.err().into_iter().flat_map(|Errors(problems)| problems) {
        let shown = problem.to_string();
        assert!(!problem.text.is_empty() && !problem.text.contains(['\n', '\r']), "not one line: {shown:?}");
        assert!(problem.file.starts_with(folder), "{shown}");
        assert!(problem.file != file || problem.line <= lines, "{shown}: it has {lines} lines");
        assert!(problem.line > 0 || problem.text.starts_with("cannot read"), "no line: {shown}");
    }
}
