//! Random configuration files: every problem is reported in one line that names the file and the
//! line. `tests/suites/config/cases.rs` holds the good files and the mistakes that users make.

use crate::config::cases::{
    CASES, CREDENTIALS, ISSUER, ISSUER_CASES, KEYS, REGION, RING, ROUTES, SECRET_KEYS,
};
use crate::fuzz::fuzz;
use crate::support::*;
use onceway::config::{Errors, load_credentials, load_ring, load_routes};

const NAMES: [&str; 5] = ["ring.toml", "routes.toml", "credentials.toml", "region.toml", "keys.json"];

fn good() -> [String; 5] {
    let credentials = format!("{ISSUER}{CREDENTIALS}");
    [RING.to_owned(), ROUTES.to_owned(), credentials, REGION.to_owned(), KEYS.to_owned()]
}

const SHORT: &[&[u8]] = &[
    b"\n", b"=", b"\"", b"'", b"\"\"\"", b"[", b"]", b"[[", b"]]", b"{", b"}", b",", b".", b"#", b"\\",
    b"\\u0000", b"-", b"0", b"-1", b"1e9", b"nan", b"inf", b"0x", b"true", b"\"0s\"", b"\"oct\"", b"\r",
    b"\0", b"\xff",
];
const LONG: &[&[u8]] = &[
    b"18446744073709551616",
    b"1979-05-27",
    b"\"9999999999d\"",
    b"[[route]]\n",
    b"[[region]]\n",
    b"[[credential]]\n",
    b"[store]\n",
    b"[peer.addresses]\n",
    b"name = \"x\"\n",
    b"[[issuer]]\n",
    b"\"kid\": \"k\"",
    b"weight = 0\n",
    b"weight = 18446744073709551615\n",
    b"\xc3\xa4",
    b"path = \"/{x}/*\"\n",
];

const TWICE: &[u8] =
    b"\n[[region]]\nname = \"twice\"\nweight = 1\n[[region]]\nname = \"twice\"\nweight = 1\n";

/// Each text after the number of its file: that byte may change as well.
fn texts() -> Vec<Vec<u8>> {
    let good = good();
    let wrong = CASES.iter().filter_map(|(name, from, to, _)| {
        let number = NAMES.iter().position(|file| file.strip_suffix(".toml") == Some(name))?;
        Some((number, good[number].replacen(from, to, 1)))
    });
    let issuers = ISSUER_CASES.iter().map(|(from, to, _)| (2, good[2].replacen(from, to, 1)));
    let secret = (4, SECRET_KEYS.to_owned());
    let all = wrong.chain(issuers).chain([secret]).chain(good.iter().cloned().enumerate());
    all.map(|(number, text)| [vec![number as u8], text.into_bytes()].concat()).collect()
}

#[test]
fn every_problem_of_a_wrong_configuration_has_its_line() {
    let (folder, good) = (tempfile::tempdir().unwrap(), good());
    for (name, good) in NAMES.iter().zip(&good) {
        fs::write(folder.path().join(name), good).unwrap();
    }
    Config::load_with(&folder.path().join("region.toml"), &|_| None).expect("the good files are good");
    let texts = texts();
    assert!(texts.len() >= 60);
    let texts: Vec<&[u8]> = texts.iter().map(Vec::as_slice).collect();
    fuzz(&texts, &[SHORT, LONG].concat(), |text| {
        let (first, text) = text.split_first().unwrap_or((&0, text));
        let number = usize::from(*first) % NAMES.len();
        check(folder.path(), number, text);
        fs::write(folder.path().join(NAMES[number]), &good[number]).unwrap();
    });
}

fn check(folder: &Path, number: usize, text: &[u8]) {
    let file = folder.join(NAMES[number]);
    // Making a ring is slow: most end in a repeated region, others are read beside an empty one.
    let hasty = !text.len().is_multiple_of(64);
    let (ring, own) = if hasty { ("", TWICE) } else { (RING, &b""[..]) };
    let text = if number == 0 { [text, own].concat() } else { text.to_vec() };
    fs::write(folder.join(NAMES[0]), ring).unwrap();
    fs::write(&file, &text).unwrap();
    let whole = || Config::load_with(&folder.join("region.toml"), &|_| None).map(drop);
    let read = match number {
        0 => load_ring(&file).map(drop),
        1 if hasty => load_routes(&file).map(drop),
        2 | 4 if hasty => load_credentials(&folder.join(NAMES[2])).map(drop),
        _ => whole(),
    };
    let lines = 1 + text.iter().filter(|byte| **byte == b'\n').count();
    for problem in read.err().into_iter().flat_map(|Errors(problems)| problems) {
        let shown = problem.to_string();
        assert!(!problem.text.is_empty() && !problem.text.contains(['\n', '\r']), "not one line: {shown:?}");
        assert!(problem.file.starts_with(folder), "{shown}");
        assert!(problem.file != file || problem.line <= lines, "{shown}: it has {lines} lines");
        // A problem of a key set has only the key's name: JSON is read without its lines.
        let has_none = problem.text.starts_with("cannot read") || shown.contains(NAMES[4]);
        assert!(problem.line > 0 || has_none, "no line: {shown}");
    }
}
