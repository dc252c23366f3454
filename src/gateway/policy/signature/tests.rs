//! Tests of the business signature: the selected fields, and a selection on serde_json's trees.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn pointers(texts: &[&str]) -> Vec<Pointer> {
    texts.iter().map(|text| Pointer::parse(text).unwrap()).collect()
}

fn include(texts: &[&str], body: &str) -> String {
    let selected = Selection::Include(pointers(texts)).select(body.as_bytes()).unwrap();
    String::from_utf8(selected).unwrap()
}

fn exclude(texts: &[&str], body: &str) -> String {
    let selected = Selection::Exclude(pointers(texts)).select(body.as_bytes()).unwrap();
    String::from_utf8(selected).unwrap()
}

#[test]
fn included_fields_stand_with_their_place_in_canonical_order() {
    let body = r#"{ "currency": "usd", "note": "x", "amount": 2000.0, "items": [{"price": 1, "n": 2}, {"n": 3}, {"price": 4}] }"#;
    assert_eq!(include(&["/currency", "/amount"], body), "\"amount\"/=2000\n\"currency\"/=\"usd\"\n");
    assert_eq!(include(&["/items/*/price"], body), "\"items\"/0/\"price\"/=1\n\"items\"/2/\"price\"/=4\n");
    assert_eq!(include(&["/items/1"], body), "\"items\"/1/={\"n\":3}\n");
    assert_eq!(include(&["/*/0/n"], body), "\"items\"/0/\"n\"/=2\n");
    assert_eq!(include(&["/absent", "/amount/below", "/items/x", "/items/01", "/items/-"], body), "");
    assert_eq!(include(&["/items", "/items/*/n"], r#"{"items":[{"n":1}]}"#), "\"items\"/=[{\"n\":1}]\n");
}

#[test]
fn absent_is_not_null_and_a_hollow_container_is_absent() {
    assert_ne!(include(&["/a"], "{}"), include(&["/a"], r#"{"a":null}"#));
    assert_eq!(include(&["/a/b"], "{}"), include(&["/a/b"], r#"{"a":{"c":1}}"#));
    assert_eq!(include(&["/a/*"], "{}"), include(&["/a/*"], r#"{"a":[]}"#));
    assert_eq!(include(&["/a"], "7"), "");
}

#[test]
fn excluded_fields_leave_no_trace() {
    let body = r#"{"items":[{"note":"a","n":1},{"n":2}],"metadata":{"t":1},"amount":5}"#;
    let rule = ["/metadata", "/items/*/note"];
    assert_eq!(exclude(&rule, body), r#"{"amount":5,"items":[{"n":1},{"n":2}]}"#);
    assert_eq!(exclude(&rule, r#"{"items":[{"n":1},{"n":2}],"amount":5}"#), exclude(&rule, body));
    assert_eq!(exclude(&["/items/0"], body), r#"{"amount":5,"items":[{"n":2}],"metadata":{"t":1}}"#);
    assert_eq!(exclude(&["/*"], body), "{}");
    assert_eq!(exclude(&["/*"], "[1,2]"), "[]");
    assert_eq!(exclude(&["/a"], "\"text\""), "\"text\"");
    assert_eq!(exclude(&["/a/b"], r#"{"a":"b"}"#), r#"{"a":"b"}"#);
}

#[test]
fn names_are_compared_as_values_not_as_spelled() {
    assert_eq!(include(&["/a~1b~0"], r#"{"a/b~":1}"#), "\"a/b~\"/=1\n");
    assert_eq!(include(&["/say \"x\""], r#"{"say \u0022x\u0022":1}"#), "\"say \\\"x\\\"\"/=1\n");
    assert_eq!(include(&["/\u{e4}"], r#"{"\u00e4":1}"#), "\"\u{e4}\"/=1\n");
    // NFC and NFD are different texts: nothing is normalised.
    assert_eq!(include(&["/\u{e4}"], "{\"a\u{308}\":1}"), "");
    assert_eq!(exclude(&["/x"], r#"{"y":"}],:{[\"\\","x":"]"}"#), r#"{"y":"}],:{[\"\\"}"#);
}

#[test]
fn a_value_cannot_pass_for_another_field() {
    let rule = ["/a", "/b"];
    assert_ne!(include(&rule, r#"{"a":"1\n\"b\"/=2"}"#), include(&rule, r#"{"a":"1","b":2}"#));
    assert_ne!(include(&["/*/*"], r#"{"a":{"b/c":1}}"#), include(&["/*/*"], r#"{"a/b":{"c":1}}"#));
}

#[test]
fn a_body_that_is_raw_only_has_no_signature() {
    for rule in [Selection::Include(pointers(&["/a"])), Selection::Exclude(pointers(&["/a"]))] {
        assert_eq!(rule.select(br#"{"b":1,"b":2}"#), Err(RawOnly::DuplicateMember));
        assert_eq!(rule.select(b""), Err(RawOnly::NotJson(0)));
    }
}

#[test]
fn bad_pointers_are_refused() {
    for bad in ["", "amount", "/a~", "/a~2", "/~01~"] {
        assert!(Pointer::parse(bad).is_err(), "{bad:?}");
    }
}

#[test]
fn the_order_of_fields_makes_no_other_rule() {
    let rule = |texts: &[&str]| Selection::Include(pointers(texts)).canonical();
    assert_eq!(rule(&["/a", "/b"]), rule(&["/b", "/a"]));
    assert_ne!(rule(&["/a", "/b"]), rule(&["/a"]));
    assert_ne!(rule(&["/a"]), Selection::Exclude(pointers(&["/a"])).canonical());
}

fn tree() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-999..999_i32).prop_map(Value::from),
        "[a-c\"\\\\,:{}\\[\\]]{0,4}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 32, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("[a-c\"]{1,2}", inner, 0..4)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

/// The same on a tree: removes the values at these places.
fn without(value: &mut Value, tokens: &[&str]) {
    let Some((first, rest)) = tokens.split_first() else { return };
    let hit = |name: &str| *first == "*" || *first == name;
    match value {
        Value::Object(members) if rest.is_empty() => members.retain(|name, _| !hit(name)),
        Value::Object(members) => {
            members.iter_mut().filter(|(name, _)| hit(name)).for_each(|(_, below)| without(below, rest));
        }
        Value::Array(items) if rest.is_empty() => {
            let mut at = 0..;
            items.retain(|_| !hit(&at.next().unwrap().to_string()));
        }
        Value::Array(items) => {
            let found = items.iter_mut().enumerate().filter(|(at, _)| hit(&at.to_string()));
            found.for_each(|(_, below)| without(below, rest));
        }
        _ => {}
    }
}

proptest! {
    #[test]
    fn pruning_agrees_with_a_tree(value in tree(), tokens in prop::collection::vec("[a-c]|\\*|0|1", 1..4)) {
        let pointer = format!("/{}", tokens.join("/"));
        let text = serde_json::to_string(&value).unwrap();
        let mut pruned = value;
        without(&mut pruned, &tokens.iter().map(String::as_str).collect::<Vec<_>>());
        let wanted = canonical::canonical_json(serde_json::to_string(&pruned).unwrap().as_bytes()).unwrap();
        prop_assert_eq!(exclude(&[&pointer], &text), String::from_utf8(wanted).unwrap());
    }

    #[test]
    fn picking_a_top_member_agrees_with_a_tree(value in tree(), name in "[a-c]{1,2}") {
        let text = json!({ "other": 1, name.clone(): value.clone() }).to_string();
        let wanted = canonical::canonical_json(value.to_string().as_bytes()).unwrap();
        let wanted = format!("\"{name}\"/={}\n", String::from_utf8(wanted).unwrap());
        prop_assert_eq!(include(&[&format!("/{name}")], &text), wanted);
    }
}
