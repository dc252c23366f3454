//! Authority as `onceway status` and `onceway region status` show it.
//!
//! `gateway::authority::status` is the contract of the JSON.

use serde_json::Value;

use super::table::{Side, columns, list, pairs, share, span, table, word, words};

/// One line about the register and the lease; nothing if the gateway does not report them.
pub fn summary(authority: &Value) -> Vec<(&'static str, String)> {
    if authority.is_null() {
        return Vec::new();
    }
    let founded = match authority["founded"].as_bool() {
        Some(true) => format!("epoch {}", word(&authority["epoch"])),
        Some(false) => "NOT FOUNDED: run `onceway init` once, when all regions are up".to_owned(),
        None => "-".to_owned(),
    };
    let voters = match words(&authority["voters"]) {
        none if none.is_empty() => none,
        some => format!(", voters {some}"),
    };
    let lease = &authority["lease"];
    let lease = match lease["held"].as_bool() {
        Some(true) => format!("held, {} left unless renewed", seconds(&lease["left_ms"])),
        Some(false) => "NOT HELD: this gateway runs no keys".to_owned(),
        None => "-".to_owned(),
    };
    let mut rows = vec![
        ("register", format!("{founded}, failover {}{voters}", word(&authority["mode"]))),
        ("lease", lease),
    ];
    if !authority["pending"].is_null() {
        let pending = word(&authority["pending"]);
        rows.push(("pending", format!("keys are given up for epoch {pending}, which is not agreed yet")));
    }
    rows
}

/// A row per region, and the waits of the keys that this gateway's region has gained.
pub fn picture(authority: &Value) -> String {
    let Some(regions) = authority["regions"].as_array() else { return String::new() };
    // Before the founding no region owns anything, and none begins to by itself.
    if authority["founded"] == false {
        return String::new();
    }
    let row = |region: &Value| {
        let [name, since, mark] = ["name", "since_epoch", "mark"].map(|field| word(&region[field]));
        vec![name, share(&region["share"]), standing(region), since, mark]
    };
    let mut text = table("owner|>share now|standing|>since epoch|>mark", regions.iter().map(row));
    for region in regions.iter().filter(|region| region["advice"].is_string()) {
        let because = region["because"].as_str().map(|_| format!(", as {}", word(&region["because"])));
        let [name, state, advice] = ["name", "state", "advice"].map(|field| word(&region[field]));
        text.push_str(&format!("{name} is {state}{}. To do: {advice}\n", because.unwrap_or_default()));
    }
    text.push_str(&waits(authority));
    text
}

/// Standing of one region, and the waits of its keys.
pub fn one(authority: &Value, region: &Value) -> String {
    let ago = region["since_ms"].as_u64().map_or(String::new(), |ms| format!(", {} ago", span(ms / 1_000)));
    let since = format!("epoch {} of {}{ago}", word(&region["since_epoch"]), word(&authority["epoch"]));
    let mut rows = vec![("region", word(&region["name"])), ("standing", standing(region))];
    for (name, field) in [("now", "state"), ("because", "because"), ("to do", "advice")] {
        rows.extend(region[field].as_str().map(|_| (name, word(&region[field]))));
    }
    rows.extend([("since", since), ("owns", share(&region["share"])), ("mark", word(&region["mark"]))]);
    format!("{}{}", pairs(rows), waits(authority))
}

/// Waits that keep gained keys from starting, each with the time that is left.
fn waits(authority: &Value) -> String {
    let row = |missing: &Value| vec![word(&missing["what"]), left(missing), word(&missing["text"])];
    let rows: Vec<_> = list(&authority["opening"]).iter().map(row).collect();
    if rows.is_empty() {
        return String::new();
    }
    let rows = columns(&[Side::Left; 3], &rows);
    format!("\nkeys that this region has gained wait for\n{rows}")
}

/// One wait that keeps gained keys from starting, in a line.
pub fn hindrance(missing: &Value) -> String {
    let (what, left, text) = (word(&missing["what"]), left(missing), word(&missing["text"]));
    if left.is_empty() { format!("{what}: {text}") } else { format!("{what}: {left}: {text}") }
}

fn left(missing: &Value) -> String {
    match (missing["left_ms"].is_null(), missing["needs_operator"] == true) {
        (false, _) => format!("{} left", seconds(&missing["left_ms"])),
        (true, true) => "NEEDS AN OPERATOR".to_owned(),
        (true, false) => String::new(),
    }
}

/// Meaning of the standing in words: nobody should have to look it up while a region is down.
fn standing(region: &Value) -> String {
    let why = match region["standing"].as_str() {
        Some(_) if region["in_ring"] == false => "left the ring: listed while rows of it live on",
        Some("sealed") if region["upstream_failing"] == true => {
            "sealed: its upstream is sick, comes back by itself"
        }
        Some("serving") if region["upstream_failing"] == true => "serving, but its upstream FAILS its checks",
        Some("serving") if region["state"] == "silent" => "serving, but SILENT",
        Some("serving") if region["state"] == "runs no keys" => "serving, but RUNS NO KEYS",
        Some("serving") => "serving",
        Some("sealed") => "sealed: complete, comes back by itself",
        Some("drained") => "drained: out until `onceway region resume`",
        Some("lost") => "LOST: its keys run elsewhere",
        Some(_) | None => return word(&region["standing"]),
    };
    why.to_owned()
}

pub fn seconds(millis: &Value) -> String {
    millis.as_u64().map_or("-".to_owned(), |millis| format!("{:.1} s", millis as f64 / 1_000.0))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{one, picture, summary};

    #[test]
    fn a_takeover_is_told_on_one_screen() {
        let authority = json!({
            "epoch": 7, "founded": true, "mode": "automatic", "lease": { "held": true, "left_ms": 2_340 },
            "voters": ["a", "b"], "pending": 8,
            "regions": [
                { "name": "a", "standing": "lost", "since_epoch": 7, "share": 0.0, "mark": 40, "generation": 1 },
                { "name": "b", "standing": "serving", "since_epoch": 1, "share": 1.0, "mark": 0, "generation": 1 },
            ],
            "opening": [
                { "what": "window", "region": "a", "text": "the window after the loss of a runs", "left_ms": 1_250, "needs_operator": false },
                { "what": "gap", "region": "a", "text": "rows are \u{1b}missing", "left_ms": null, "needs_operator": true },
            ],
        });
        let rows = summary(&authority);
        assert_eq!(rows[0].1, "epoch 7, failover automatic, voters a, b");
        assert_eq!(rows[1].1, "held, 2.3 s left unless renewed");
        assert_eq!(rows[2].0, "pending");
        let text = picture(&authority);
        for line in [
            "a         0.00 %  LOST: its keys run elsewhere            7    40",
            "b       100.00 %  serving                                 1     0",
            "window  1.2 s left         the window after the loss of a runs",
            "gap     NEEDS AN OPERATOR  rows are  missing",
        ] {
            assert!(text.lines().any(|one| one == line), "{line:?} in\n{text}");
        }
        assert!(one(&authority, &authority["regions"][0]).starts_with("region    a\nstanding  LOST"));
    }

    #[test]
    fn a_regions_status_says_why_and_what_to_do() {
        let silent = json!({
            "name": "b", "standing": "serving", "since_epoch": 3, "since_ms": 750_000, "state": "silent",
            "because": "it was last heard 14.0 s ago", "advice": "nothing: so and so", "share": 0.5, "mark": 0,
        });
        let authority = json!({ "epoch": 7, "founded": true, "regions": [silent] });
        let text = one(&authority, &authority["regions"][0]);
        for line in [
            "standing  serving, but SILENT",
            "now       silent",
            "because   it was last heard 14.0 s ago",
            "to do     nothing: so and so",
            "since     epoch 3 of 7, 12 min ago",
        ] {
            assert!(text.lines().any(|one| one == line), "{line:?} in\n{text}");
        }
        let all = picture(&authority);
        assert!(
            all.contains("b is silent, as it was last heard 14.0 s ago. To do: nothing: so and so\n"),
            "{all}"
        );
    }

    #[test]
    fn an_older_gateway_says_nothing_of_it() {
        assert_eq!((summary(&json!(null)).len(), picture(&json!(null))), (0, String::new()));
        let unfounded = json!({ "founded": false, "lease": { "held": false }, "regions": [{ "name": "a", "standing": "sealed" }] });
        assert_eq!(picture(&unfounded), "", "nobody owns anything yet");
        let unfounded = summary(&unfounded);
        assert!(unfounded[0].1.starts_with("NOT FOUNDED") && unfounded[1].1.starts_with("NOT HELD"));
    }
}
