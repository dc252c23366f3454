//! Tests of the canonical form: RFC 8785's vectors, every raw-only reason, and serde_json's
//! reading.

use proptest::prelude::*;
use serde_json::Value;

use super::*;

fn canonical(body: &str) -> Result<String, RawOnly> {
    canonical_json(body.as_bytes()).map(|out| String::from_utf8(out).unwrap())
}

fn ok(body: &str) -> String {
    canonical(body).unwrap_or_else(|why| panic!("{body}: {why}"))
}

#[test]
fn rfc_8785_appendix_b() {
    let table = [
        (0x0000000000000000, "0"),
        (0x8000000000000000, "0"),
        (0x0000000000000001, "5e-324"),
        (0x8000000000000001, "-5e-324"),
        (0x7fefffffffffffff, "1.7976931348623157e+308"),
        (0xffefffffffffffff, "-1.7976931348623157e+308"),
        (0x4340000000000000, "9007199254740992"),
        (0xc340000000000000, "-9007199254740992"),
        (0x4430000000000000, "295147905179352830000"),
        (0x44b52d02c7e14af5, "9.999999999999997e+22"),
        (0x44b52d02c7e14af6, "1e+23"),
        (0x44b52d02c7e14af7, "1.0000000000000001e+23"),
        (0x444b1ae4d6e2ef4e, "999999999999999700000"),
        (0x444b1ae4d6e2ef4f, "999999999999999900000"),
        (0x444b1ae4d6e2ef50, "1e+21"),
        (0x3eb0c6f7a0b5ed8c, "9.999999999999997e-7"),
        (0x3eb0c6f7a0b5ed8d, "0.000001"),
        (0x41b3de4355555553, "333333333.3333332"),
        (0x41b3de4355555554, "333333333.33333325"),
        (0x41b3de4355555555, "333333333.3333333"),
        (0x41b3de4355555556, "333333333.3333334"),
        (0x41b3de4355555557, "333333333.33333343"),
        (0xbecbf647612f3696, "-0.0000033333333333333333"),
        (0x43143ff3c1cb0959, "1424953923781206.2"),
    ];
    for (bits, text) in table {
        let value = f64::from_bits(bits);
        assert_eq!(ryu_js::Buffer::new().format_finite(value), text, "{bits:x}");
        let want = if value.abs() >= MAX_NUMBER {
            Err(RawOnly::LargeNumber)
        } else if value.is_subnormal() {
            Err(RawOnly::InexactNumber)
        } else {
            Ok(text.to_owned())
        };
        assert_eq!(canonical(text), want, "{text}");
    }
}

/// RFC 8785 section 3.2.2, but for its 1E30 and 333333333.33333329, which are raw only here.
#[test]
fn rfc_8785_serialisation_sample() {
    let body = r#"{
        "numbers": [333333333.3333333, 4.50, 2e-3, 0.000000000000000000000000001],
        "string": "\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/",
        "literals": [null, true, false]
    }"#;
    let want = r#"{"literals":[null,true,false],"numbers":[333333333.3333333,4.5,0.002,1e-27],"string":"€$\u000f\nA'B\"\\\\\"/"}"#;
    assert_eq!(ok(body), want);
    assert_eq!(canonical("1E30"), Err(RawOnly::LargeNumber));
    assert_eq!(canonical("333333333.33333329"), Err(RawOnly::InexactNumber));
}

/// RFC 8785 section 3.2.3.
#[test]
fn rfc_8785_sorting_sample() {
    let body = r#"{
        "\u20ac": "Euro Sign",
        "\r": "Carriage Return",
        "\ufb33": "Hebrew Letter Dalet With Dagesh",
        "1": "One",
        "\ud83d\ude00": "Emoji: Grinning Face",
        "\u0080": "Control",
        "\u00f6": "Latin Small Letter O With Diaeresis"
    }"#;
    let want = [
        "{\"\\r\":\"Carriage Return\"",
        "\"1\":\"One\"",
        "\"\u{80}\":\"Control\"",
        "\"ö\":\"Latin Small Letter O With Diaeresis\"",
        "\"€\":\"Euro Sign\"",
        "\"😀\":\"Emoji: Grinning Face\"",
        "\"\u{fb33}\":\"Hebrew Letter Dalet With Dagesh\"}",
    ];
    assert_eq!(ok(body), want.join(","));
}

#[test]
fn one_value_one_form() {
    let table: [(&[&str], &str); 10] = [
        (&["1", "1.0", "1e0", "1E+0", "10e-1", "0.1e1", " 1\n"], "1"),
        (&["0", "-0", "0.0", "-0e5", "0e-999999"], "0"),
        (&["-1.50", "-15e-1"], "-1.5"),
        (&["100", "1e2"], "100"),
        (&["9007199254740991", "9007199254740991.0"], "9007199254740991"),
        (&["0.1", "0.10", "0.1000000000000000000000000", "1e-1"], "0.1"),
        (&[r#""a/\"""#, r#""\u0061\/\u0022""#], r#""a/\"""#),
        (&["\"\u{7f}\"", r#""\u007F""#], "\"\u{7f}\""),
        (
            &[r#""\b\f\n\r\t\u0000\u001f""#, r#""\u0008\u000c\u000A\u000d\u0009\u0000\u001F""#],
            r#""\b\f\n\r\t\u0000\u001f""#,
        ),
        (&["[ { } , [ ] ]", "[{},[]]", "\t[{\n},[\r]]"], "[{},[]]"),
    ];
    for (bodies, want) in table {
        for body in bodies {
            assert_eq!(ok(body), want, "{body:?}");
        }
    }
    let nested = ok(r#"{"b":{"z":1,"y":[{"d":1,"c":2}]},"a":{"":0},"ab":2}"#);
    assert_eq!(nested, r#"{"a":{"":0},"ab":2,"b":{"y":[{"c":2,"d":1}],"z":1}}"#);
}

#[test]
fn numbers_a_double_does_not_hold_are_raw_only() {
    let large = "9007199254740992 9007199254740993 -9007199254740992 18446744073709551616 1e300 1e400 \
        -1e400 9007199254740991.5 9e15000 1e99999999999999999999";
    for large in large.split(' ') {
        assert_eq!(canonical(large), Err(RawOnly::LargeNumber), "{large}");
    }
    let inexact = "0.10000000000000001 0.12345678901234567890 1.00000000000000000000001 9007199254740990.9 \
        1e-400 5e-324 2.2250738585072011e-308 -1e-99999999999999999999";
    for inexact in inexact.split(' ') {
        assert_eq!(canonical(inexact), Err(RawOnly::InexactNumber), "{inexact}");
    }
    for exact in ["0.12345678901234568", "1234567890.123456", "2.2250738585072014e-308", "900719925474099.1"]
    {
        assert_eq!(ok(exact), exact);
    }
}

#[test]
fn duplicate_members_are_raw_only() {
    let bodies =
        r#"{"a":1,"a":1} {"a":1,"b":2,"a":3} {"a":1,"\u0061":2} {"":1,"":2} [{"x":{"b":1,"a":2,"b":3}}]"#;
    for body in bodies.split(' ') {
        assert_eq!(canonical(body), Err(RawOnly::DuplicateMember), "{body}");
    }
    assert_eq!(ok(r#"[{"a":1},{"a":2}]"#), r#"[{"a":1},{"a":2}]"#);
    assert_eq!(ok("{\"\u{e9}\":1,\"e\u{301}\":2}"), "{\"e\u{301}\":2,\"\u{e9}\":1}", "no normalisation");
}

#[test]
fn lone_surrogates_are_raw_only() {
    let bodies = r#""\ud800" "\udc00" "\ud800x" "\ud800\n" "\ud800\ud800" "\ude00\ud83d" {"\udfff":1}"#;
    for body in bodies.split(' ') {
        assert_eq!(canonical(body), Err(RawOnly::LoneSurrogate), "{body}");
    }
    assert_eq!(ok(r#""\uD83D\uDE00""#), "\"😀\"");
}

#[test]
fn depth_is_bounded_and_so_is_the_stack() {
    let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    assert_eq!(ok(&nested(MAX_DEPTH)), nested(MAX_DEPTH));
    assert_eq!(canonical(&nested(MAX_DEPTH + 1)), Err(RawOnly::TooDeep));
    let objects = |depth: usize| format!("{}1{}", r#"{"a":"#.repeat(depth), "}".repeat(depth));
    assert_eq!(ok(&objects(MAX_DEPTH)), objects(MAX_DEPTH));
    assert_eq!(canonical(&objects(MAX_DEPTH + 1)), Err(RawOnly::TooDeep));
    assert_eq!(canonical_json(&vec![b'['; 10 << 20]), Err(RawOnly::TooDeep));
}

#[test]
fn invalid_json_is_compared_by_raw_bytes_only() {
    // The mark stands where reading stops.
    let marked = "^| ^|^x|[1,^]|[^,1]|[1 ^2]|{^a:1}|[^|{^|^]|1 ^1|{}^{}|[] ^x|^nul|^True|^NaN|-^|^+1|0^1|-0^1|^.5|1.^\
        |1e^|1e+^|{\"a\":1,^}|{\"a\" ^1}|{\"a\":^}|{\"a\"^}|^Infinity|-^Infinity|\"a^|\"^\n\"|\"\\^x\"|\"\\u^12g4\"";
    for marked in marked.split('|') {
        let (at, body) = (marked.find('^').unwrap(), marked.replace('^', ""));
        assert_eq!(canonical(&body), Err(RawOnly::NotJson(at)), "{body:?}");
        assert!(serde_json::from_str::<Value>(&body).is_err(), "{body:?}");
    }
    let unmarked = "\"\\u12|\"\\|'a'|// c\n1|0x10|1_000|[1]\0|\u{a0}1|\"\\u{41}\"|\"\\ud800\\u12\"";
    for body in unmarked.split('|') {
        assert!(matches!(canonical(body), Err(RawOnly::NotJson(_))), "{body:?}");
    }
}

#[test]
fn encodings_are_raw_only() {
    assert_eq!(canonical("\u{feff}1"), Err(RawOnly::ByteOrderMark));
    for body in [&b"\"\xff\""[..], b"\"\xc0\xaf\"", b"\"\xed\xa0\x80\"", b"\xff\xfe1\0", b"\"\xe2\x82\""] {
        assert_eq!(canonical_json(body), Err(RawOnly::NotUtf8), "{body:?}");
    }
    assert_eq!(canonical("1\u{feff}"), Err(RawOnly::NotJson(1)));
}

#[test]
fn every_reason_is_one_line() {
    for why in [RawOnly::NotJson(3), RawOnly::TooDeep, RawOnly::DuplicateMember, RawOnly::LargeNumber] {
        assert!(!why.to_string().contains('\n'));
    }
    assert_eq!(RawOnly::TooDeep.to_string(), "the body is nested deeper than 64 levels");
}

/// Values that mostly have a canonical form: some numbers do not.
fn value() -> impl Strategy<Value = Value> {
    let number = prop_oneof![
        6 => (-1_000_000i64..1_000_000).prop_map(Value::from),
        2 => (-1e9..1e9).prop_map(|x: f64| Value::from(x)),
        1 => any::<f64>().prop_map(Value::from),
    ];
    let text = "([ -~]|[\u{0}-\u{1f}]|[\u{80}-\u{10ffff}]){0,6}";
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        number,
        text.prop_map(Value::from)
    ];
    leaf.prop_recursive(5, 40, 6, move |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            proptest::collection::btree_map(text, inner, 0..6)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

/// Another spelling of the value: `dice` draws blanks, escapes and the members' order.
fn respell(value: &Value, dice: &mut impl FnMut() -> u8, out: &mut String) {
    let blank = |out: &mut String, dice: &mut dyn FnMut() -> u8| {
        out.push_str(["", "", " ", "\n", "\t\r\n"][usize::from(dice()) % 5]);
    };
    blank(out, dice);
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => out.push_str(&value.to_string()),
        Value::String(text) => respell_string(text, dice, out),
        Value::Array(items) => {
            out.push('[');
            for (i, item) in items.iter().enumerate() {
                out.push_str(if i > 0 { "," } else { "" });
                respell(item, dice, out);
            }
            blank(out, dice);
            out.push(']');
        }
        Value::Object(map) => {
            let mut members: Vec<_> = map.iter().map(|member| (dice(), member)).collect();
            members.sort_by_key(|(drawn, _)| *drawn);
            out.push('{');
            for (i, (_, (name, item))) in members.into_iter().enumerate() {
                out.push_str(if i > 0 { "," } else { "" });
                blank(out, dice);
                respell_string(name, dice, out);
                blank(out, dice);
                out.push(':');
                respell(item, dice, out);
            }
            blank(out, dice);
            out.push('}');
        }
    }
    blank(out, dice);
}

fn respell_string(text: &str, dice: &mut impl FnMut() -> u8, out: &mut String) {
    out.push('"');
    for char in text.chars() {
        if char < ' ' || matches!(char, '"' | '\\') || dice() < 40 {
            let mut units = [0; 2];
            for unit in char.encode_utf16(&mut units) {
                out.push_str(&if dice() < 128 { format!("\\u{unit:04x}") } else { format!("\\u{unit:04X}") });
            }
        } else {
            out.push(char);
        }
    }
    out.push('"');
}

proptest! {
    #[test]
    fn all_spellings_of_a_value_agree(value in value(), dice in proptest::collection::vec(any::<u8>(), 1..200)) {
        let compact = canonical_json(&serde_json::to_vec(&value).unwrap());
        let pretty = canonical_json(&serde_json::to_vec_pretty(&value).unwrap());
        let (mut rolled, mut other) = (dice.iter().copied().cycle(), String::new());
        respell(&value, &mut || rolled.next().unwrap_or(0), &mut other);
        prop_assert_eq!(&compact, &pretty);
        match compact {
            Ok(form) => {
                prop_assert_eq!(canonical_json(other.as_bytes()), Ok(form.clone()), "{}", other);
                prop_assert_eq!(canonical_json(&form), Ok(form.clone()), "not a fixed point");
            }
            // The first number that fails depends on the members' order.
            Err(RawOnly::LargeNumber | RawOnly::InexactNumber) => prop_assert!(canonical(&other).is_err()),
            Err(why) => prop_assert!(false, "{}: {}", why, value),
        }
    }

    #[test]
    fn a_double_keeps_its_value(negative: bool, exponent in 1u64..1023 + 53, fraction in 0u64..1 << 52) {
        let bits = u64::from(negative) << 63 | exponent << 52 | fraction;
        let value = f64::from_bits(bits);
        let text = ryu_js::Buffer::new().format_finite(value).to_owned();
        prop_assert_eq!(canonical(&text), Ok(text.clone()));
        prop_assert_eq!(text.parse::<f64>().unwrap().to_bits(), bits);
        // Rust settles a tie between two shortest decimals differently: it writes
        // 1424953923781206.3 where ECMAScript writes 1424953923781206.2. Then its spelling is raw
        // only, never taken for the other.
        for other in [format!("{value:?}"), format!("{value:e}"), format!("{value}")] {
            let form = canonical(&other);
            prop_assert!(form == Ok(text.clone()) || form == Err(RawOnly::InexactNumber), "{}: {:?}", other, form);
        }
    }

    #[test]
    fn two_decimals_never_meet(
            whole in 0u32..100_000_000,
            digits in 0u64..9_000_000_000,
            step in 1u64..20,
            places in 10usize..20,
        ) {
        let decimal = |digits: u64| format!("{whole}.{digits:0places$}");
        if let (Ok(one), Ok(two)) = (canonical(&decimal(digits)), canonical(&decimal(digits + step))) {
            prop_assert_ne!(one, two);
        }
    }

    #[test]
    fn agrees_with_serde_json_on_what_is_json(
            text in r#"[\[\]{},:"\\0-9eE+.\- untrfalsb/]{0,12}|[\[{]"[a\\u0d8]{0,8}":?[0-9.e-]{0,6}[\]}]"#,
        ) {
        let json = serde_json::from_str::<Box<serde_json::value::RawValue>>(&text).is_ok();
        match canonical(&text) {
            Ok(_) => prop_assert!(json, "{:?} is not JSON", text),
            Err(RawOnly::NotJson(at)) => prop_assert!(!json && at <= text.len(), "{:?} is JSON", text),
            Err(_) => {}
        }
    }
}
