//! `operators.toml`: the mistakes with the exact message for each, and who may do what with which
//! token.
//!
//! A message must not repeat a token's digest: its author may have written the token itself.

use crate::config::{files, load, said, said_with};
use crate::support::*;
use onceway::config::check_operators;
use onceway::gateway::credentials::digest;
use onceway::gateway::credentials::operators::Visitor;

const NAMED: (&str, &str, &str) =
    ("region", "[store]\n", "[admin]\noperators = \"operators.toml\"\n[store]\n");

#[test]
fn each_mistake_is_reported_at_its_line() {
    let one = operator("ann", "act", "a");
    let cases = [
        (String::new(), "1: no operator is listed: write an [[operator]] with name, role and sha256"),
        (
            one.replace("\"act\"", "\"root\""),
            "3: [[operator]]: role: must be \"look\" or \"act\" or \"approve\", not \"root\"",
        ),
        (
            one.replace("role = \"act\"\n", ""),
            "1: [[operator]]: role is missing: say what this operator may do: \"look\", \"act\" or \"approve\"",
        ),
        (
            one.replace("name = \"ann\"\n", ""),
            "1: [[operator]]: name is missing: name who has the token, such as name = \"ann\"",
        ),
        (
            one.replace("\"ann\"", "\"ann \""),
            "2: [[operator]]: name: must have at most 100 bytes, on one line, without space around it",
        ),
        (
            one.replace("sha256 = \"", "sha256 = \"0"),
            "4: [[operator]]: sha256: must be 64 hex digits, as `printf %s TOKEN | sha256sum` prints them; never write the token itself",
        ),
        (
            format!("{one}token = \"a\"\n"),
            "5: [[operator]]: unknown key \"token\": known here are name, role, sha256",
        ),
        (
            one.clone() + &operator("bob", "act", "a"),
            "8: [[operator]]: this token is listed already, for ann: list it once",
        ),
        (
            one.clone() + &operator("ann", "look", "b"),
            "7: [[operator]]: ann has another role above: give both tokens the same",
        ),
    ];
    for (text, expected) in cases {
        let folder = files(&[NAMED]);
        fs::write(folder.path().join("operators.toml"), &text).unwrap();
        assert_eq!(said(folder.path()), [format!("operators.toml:{expected}")], "{text}");
    }
    let absent = said_with(&[NAMED]);
    assert!(absent[0].contains("operators.toml") && absent.len() == 1, "{absent:?}");
}

#[test]
fn a_second_person_is_another_one_who_may_approve() {
    let with = |operators: &str| {
        let lines = "[admin]\noperators = \"operators.toml\"\nsecond_person = [\"release\", \"accept-risk\", \"break-glass\"]\n[store]\n";
        let folder = files(&[("region", "[store]\n", lines)]);
        fs::write(folder.path().join("operators.toml"), operators).unwrap();
        folder
    };
    let wanted = "region.toml:11: [admin]: second_person needs two named operators: one with the role \"approve\", and another who may act";
    let ann = operator("ann", "approve", "a");
    for alone in [ann.clone(), operator("ann", "act", "a") + &operator("bob", "act", "b")] {
        assert_eq!(said(with(&alone).path()), [wanted], "{alone}");
    }
    assert_eq!(said(with(&(ann.clone() + &operator("ann", "approve", "b"))).path()), [wanted], "one person");
    assert_eq!(said(with(&(ann.clone() + &operator("eve", "look", "b"))).path()), [wanted], "nobody acts");
    let two = with(&(ann + &operator("bob", "act", "b")));
    assert_eq!(load(two.path()).unwrap().process.admin.operators().second_person.len(), 3);
    let shared =
        ("region", "[store]\n", "[admin]\ntoken_file = \"t\"\nsecond_person = [\"release\"]\n[store]\n");
    let folder = files(&[shared]);
    fs::write(folder.path().join("t"), "a-token-of-25-characters-").unwrap();
    assert_eq!(said(folder.path()), [wanted], "nobody has a name");
}

#[test]
fn the_shared_token_is_nobodys_own() {
    let both = "[admin]\ntoken_file = \"token\"\noperators = \"operators.toml\"\n[store]\n";
    let folder = files(&[("region", "[store]\n", both)]);
    fs::write(folder.path().join("token"), "a-token-of-25-characters-").unwrap();
    let write = |token: &str| {
        fs::write(folder.path().join("operators.toml"), operator("ann", "act", token)).unwrap();
    };
    write("a-token-of-25-characters-");
    let wanted =
        "region.toml:9: the shared token is a named operator's, too: draw another (`openssl rand -hex 32`)";
    assert_eq!(said(folder.path()), [wanted]);
    write("another");
    let operators = load(folder.path()).unwrap().process.admin.operators();
    let of = |token: &str| operators.of(&digest(token.as_bytes()));
    assert_eq!(of("a-token-of-25-characters-"), Some(Visitor::Shared { beside_named: true }));
    assert_eq!(of("another").unwrap().name(), Some("ann"));
}

#[test]
fn a_listener_that_others_reach_may_have_named_operators_only() {
    let open = ("region", "admin = \"127.0.0.1:7402\"", "admin = \"0.0.0.0:7402\"");
    let folder = files(&[open, NAMED]);
    fs::write(folder.path().join("operators.toml"), operator("ann", "act", "a")).unwrap();
    assert!(!load(folder.path()).unwrap().process.admin.operators().is_open());
    assert_eq!(check_operators(&folder.path().join("operators.toml")).value, Some(1));
}
