//! `onceway status`: a gateway's report of itself, for people.
//!
//! `gateway::telemetry::status` is the contract of the JSON.

use std::collections::BTreeSet;

use clap::Args;
use serde_json::Value;

use super::authority;
use super::http::Admin;
use super::process::{Failure, tell};
use super::table::{list, pairs, printable, share, table, word};

/// Answer "is this gateway well, and what does it wait for?": readiness, store, owners and the
/// reasons, peers, observed lag, replication.
#[derive(Args)]
#[command(after_long_help = "\
Examples:
  onceway status                                    the demo's first region
  onceway status --admin http://127.0.0.1:7412      its second one
  onceway status --json | jq .readiness
  onceway status --admin http://10.0.0.7:7402 --token-file secrets/admin-token

Exit codes: 0 shown, whatever it says; 1 the gateway does not answer; 2 wrong arguments.")]
pub struct Status {
    #[command(flatten)]
    gateway: Admin,
    /// Print the gateway's JSON as it is.
    #[arg(long)]
    json: bool,
}

impl Status {
    pub fn run(&self) -> Result<(), Failure> {
        let status = self.gateway.get("/v1/status")?;
        tell(self.json, &status, &picture(&status))
    }
}

fn picture(status: &Value) -> String {
    let readiness = &status["readiness"];
    let ready = match (readiness["ready"].as_bool(), readiness["serves"].as_bool()) {
        (Some(true), Some(true)) => "ready, runs keys",
        (Some(true), _) => "ready, forwards only",
        (Some(false), _) => "NOT READY",
        (None, _) => "-",
    };
    let store = &status["store"];
    let [gate, heartbeat] = ["gate_version", "heartbeat"].map(|field| word(&store[field]));
    let open = match store["open"].as_bool() {
        Some(true) => format!("open, gate version {gate}, heartbeat {heartbeat}"),
        Some(false) => format!("CLOSED: {}", word(&store["reason"])),
        None => "-".to_owned(),
    };
    let view = &word(&status["view"]);
    let shared = &word(&status["shared"]);
    let mut rows = vec![
        ("region", word(&status["region"])),
        ("state", ready.to_owned()),
        ("store", open),
        ("in flight", word(&status["in_flight"])),
        (
            "view",
            format!("epoch {}, digest {view:.16}, shared settings {shared:.16}", word(&status["epoch"])),
        ),
    ];
    let protocol = format!("version {}, speaks {}", word(&status["protocol"]), word(&status["speaks"]));
    rows.push(("protocol", protocol));
    rows.extend(authority::summary(&status["authority"]));
    let upstream = &status["upstream"];
    if let Some(failing) = upstream["failing_ms"].as_u64() {
        let seconds = failing / 1_000;
        let then = match (upstream["keeps_out"] == true, upstream["sick"] == true) {
            (true, _) => "this region stays out until it is well",
            (false, true) => "long enough to drain this region, if enough others are well",
            (false, false) => "not for long enough to drain this region",
        };
        rows.push(("upstream", format!("FAILS its checks for {seconds} s: {then}")));
    }
    rows.push(("audit", audit(&status["audit"])));
    let doubts = match status["doubts"].as_u64() {
        Some(0) => "no key".to_owned(),
        Some(count) => format!("{count} keys of this region: `onceway doubts` lists them"),
        None => "not counted yet".to_owned(),
    };
    rows.push(("in doubt", doubts));
    rows.extend(configuration(&status["config"]));
    rows.extend(list(&readiness["reasons"]).iter().map(|reason| ("because", word(reason))));
    let mut text = pairs(rows);
    text.push('\n');
    text.push_str(&regions(status));
    let owners = authority::picture(&status["authority"]);
    if !owners.is_empty() {
        text.push('\n');
        text.push_str(&owners);
    }
    text
}

/// Progress of the search for keys that ran twice, and its findings.
fn audit(audit: &Value) -> String {
    let Some(age) = audit["age_ms"].as_u64() else { return "-".to_owned() };
    let (age, passes) = (age / 1_000, &audit["passes"]);
    let pass = match (passes.as_u64(), audit["took_ms"].as_u64()) {
        (Some(0), _) => format!("no whole pass since the start {age} s ago"),
        (_, took) => {
            let took = took.map_or("-".to_owned(), |took| took.div_ceil(1_000).to_string());
            format!("last whole pass began {age} s ago, took {took} s")
        }
    };
    let found = match (audit["doubles"].as_u64(), audit["unexplained"].as_u64()) {
        (Some(0), _) => "no double known".to_owned(),
        (Some(doubles), Some(0)) => format!("{doubles} DOUBLES"),
        (Some(doubles), Some(bugs)) => format!("{doubles} DOUBLES, {bugs} UNEXPLAINED: a bug"),
        (_, _) => "doubles not counted yet".to_owned(),
    };
    format!("{found}; {pass}")
}

fn configuration(config: &Value) -> Vec<(&'static str, String)> {
    let old = |problem: &Value| ("config", format!("NOT TAKEN OVER, the old one runs: {}", word(problem)));
    let restart = |key: &Value| ("config", format!("needs a restart: {}", word(key)));
    list(&config["problems"]).iter().map(old).chain(list(&config["restart"]).iter().map(restart)).collect()
}

/// A row per region: its share of the ring. For peers also their state, and the lag of this
/// region's copy.
fn regions(status: &Value) -> String {
    let mut rows = Vec::new();
    let me = status["region"].as_str();
    let copies = list(&status["subscriptions"]);
    let names = |field: &str| status[field].as_object().into_iter().flatten().map(|(name, _)| name.clone());
    // A region that is about to join is a peer before it is in the ring. One that left stays a peer
    // as long as it is known.
    let all: BTreeSet<String> = names("shares").chain(names("peers")).collect();
    for name in &all {
        let (owned, peer) = (&status["shares"][name], &status["peers"][name]);
        let copy = copies.iter().find(|copy| copy["from"] == name.as_str());
        let of_copy = |field: &str| copy.map_or("-".to_owned(), |copy| word(&copy[field]));
        let mut row = vec![printable(name), share(owned)];
        if me == Some(name.as_str()) {
            row.push("(this one)".to_owned());
        } else {
            row.extend([word(&peer["up"]), word(&peer["serving"]), word(&peer["epoch"])]);
            row.extend(["rtt_ms", "lag_ms", "lag_max_ms"].map(|field| ms(&peer[field])));
            row.extend([of_copy("ready"), of_copy("streaming")]);
            row.push(peer["trouble"].as_str().map(|_| word(&peer["trouble"])).unwrap_or_default());
        }
        rows.push(row);
    }
    table("region|>share|up|serving|>epoch|>rtt|>lag|>lag max|copied|streaming|trouble", rows)
}

fn ms(value: &Value) -> String {
    value.as_f64().map_or("-".to_owned(), |ms| format!("{ms:.1} ms"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{audit, picture};

    #[test]
    fn a_status_is_a_table() {
        let status = json!({
            "region": "a", "origin": "a#1", "epoch": 1, "protocol": 1, "speaks": "1-2", "view": "0123456789abcdef0123", "shared": "fedcba9876543210ffff",
            "readiness": { "ready": true, "serves": false, "forwards_to": ["b"], "reasons": ["store: starting"] },
            "store": { "open": false, "reason": "starting", "gate_version": null, "heartbeat": null },
            "audit": { "doubles": 2, "unexplained": 1, "passes": 3, "age_ms": 61_000, "took_ms": 4_200, "looked_at": 7 },
            "doubts": 2, "in_flight": 2, "shares": { "a": 0.5, "b": 0.5 },
            "peers": { "b": { "up": true, "serving": false, "epoch": 1, "rtt_ms": 61.23, "lag_ms": null,
                "lag_max_ms": 80.0, "trouble": "its \u{1b}[2Jview differs" } },
            "subscriptions": [{ "from": "b", "ready": true, "streaming": false }],
        });
        let text = picture(&status);
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[1], ["state", "ready,", "forwards", "only"]);
        assert_eq!(lines[2], ["store", "CLOSED:", "starting"]);
        assert_eq!(lines[5], ["protocol", "version", "1,", "speaks", "1-2"]);
        let said = "audit 2 DOUBLES, 1 UNEXPLAINED: a bug; last whole pass began 61 s ago, took 5 s";
        assert_eq!(lines[6].join(" "), said);
        assert_eq!(lines[7].join(" "), "in doubt 2 keys of this region: `onceway doubts` lists them");
        assert_eq!(lines[8], ["because", "store:", "starting"]);
        assert_eq!(lines[11], ["a", "50.00", "%", "(this", "one)"]);
        let peer = ["b", "50.00", "%", "yes", "NO", "1", "61.2", "ms", "-", "80.0", "ms", "yes", "NO"];
        assert_eq!(lines[12][..13], peer);
        let early =
            json!({ "doubles": null, "unexplained": null, "passes": 0, "age_ms": 4_000, "took_ms": null });
        assert_eq!(audit(&early), "doubles not counted yet; no whole pass since the start 4 s ago");
        assert_eq!(audit(&json!(null)), "-", "of a gateway that does not say");
    }

    #[test]
    fn a_region_that_is_about_to_join_is_listed() {
        let status = json!({ "region": "a", "shares": { "a": 1.0 }, "peers": { "new": { "up": true, "serving": false } } });
        let text = picture(&status);
        let row = text.lines().find(|line| line.starts_with("new ")).unwrap();
        assert_eq!(row.split_whitespace().take(4).collect::<Vec<_>>(), ["new", "-", "yes", "NO"]);
    }
}
