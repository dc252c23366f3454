//! `config/routes.toml`: it is what the declaration of a route's settings says, and nothing else.
//!
//! `ONCEWAY_WRITE=1` writes the file anew. A setting must not be named here but for its place among
//! the examples.

use std::path::Path;

use crate::support::documents::text as document;
use onceway::config::settings::shown;
use onceway::gateway::policy::settings::{Kind, Policy, Setting, TABLES, settings};

/// Lines before the setting with this key. A route cannot have all settings at once.
const BEFORE: [(&str, &str); 5] = [
    (
        "name",
        r#"# routes.toml: which requests need a key, and how their effects are performed and remembered.
# Equal in all regions: peers compare a digest of it.
# The first route that takes a request's method and path applies.
# A POST or PATCH that no route takes is refused.
# Everything else without a route streams straight through.
#
# Spans of time are "250ms", "10s", "5m", "24h", "7d"; sizes "64KiB", "1MiB", "5MB".

# A route with nearly every setting there is.
[[route]]
"#,
    ),
    (
        "fingerprint.include",
        r#"
[[route]]
name = "payouts"
methods = ["POST"]
path = "/v1/payouts"
key = "required"
recovery = "park"
"#,
    ),
    (
        "max_attempts",
        r#"
[[route]]
name = "emails"
methods = ["POST"]
path = "/v1/emails"
key = "required"
recovery = "rerun"
"#,
    ),
    ("accept.request_retention", "mode = \"prefer\"\n"),
    (
        "escrow_alone",
        r#"
[[route]]
name = "notes"
methods = ["POST", "PATCH"]
path = "/v1/notes/*"
key = "optional"
recovery = "park"
escrow = "claim"
"#,
    ),
];

const END: &str = r#"
# A POST without an effect worth protecting must say so, or it is refused.
[[route]]
name = "search"
methods = ["POST"]
path = "/v1/search"
key = "off"
"#;

fn comment(words: &str) -> String {
    let lines = words.lines().filter(|line| !line.trim().is_empty());
    lines.map(|line| format!("# {}\n", line.strip_prefix("        ").unwrap_or(line))).collect()
}

fn line(key: &str, setting: &Setting) -> String {
    match setting.kind {
        Kind::Own(line, _) | Kind::OfRoute(line, _) => line.to_owned(),
        // A day is better known as 24 hours.
        _ => {
            format!("{key} = {} # default", shown(setting, &mut Policy::usual())).replace("\"1d\"", "\"24h\"")
        }
    }
}

fn written() -> String {
    let (mut text, mut last) = (String::new(), "");
    for setting in settings() {
        let before = BEFORE.iter().find(|(key, _)| *key == setting.key);
        text += before.map_or("", |(_, lines)| lines);
        let (table, key) = setting.key.split_once('.').unwrap_or(("", setting.key));
        if let Some((name, words)) = TABLES.iter().find(|(name, _)| *name == table && *name != last) {
            text += &format!("{}[route.{name}]\n", comment(words));
        }
        last = table;
        text += &format!("{}{}\n", comment(setting.words), line(key, setting));
    }
    text + END
}

#[test]
fn the_file_of_routes_is_what_the_declaration_says() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("config/routes.toml");
    if std::env::var_os("ONCEWAY_WRITE").is_some() {
        std::fs::write(&path, written()).unwrap();
    }
    let differs = "config/routes.toml is written from the declaration: run this test with ONCEWAY_WRITE=1";
    assert_eq!(document("config/routes.toml"), written(), "{differs}");
}
