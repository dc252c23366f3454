//! `onceway shadow`: counts of the decisions that a gateway in shadow mode would have made.
//!
//! `gateway::shadow` counts. A field that a gateway does not send counts as nothing.

use clap::Args;
use serde_json::Value;

use super::http::Admin;
use super::process::{Failure, tell};
use super::table::{table, thousands};

/// Show how many requests a gateway in shadow mode would have run, replayed or refused.
#[derive(Args)]
#[command(after_long_help = "\
A gateway whose region file says shadow = true passes everything to its upstream and counts what it would have done. It is one
process's memory: a retry that another gateway got, or that came before a restart, counts as run.

  run          sent to the upstream under a claim
  replayed     answered with the first answer, upstream untouched
  in doubt     left to the route's recovery: the first copy's outcome is not known
  refused      answered with a problem, by code
  unprotected  passed on without a key's protection, though it may change state
  unjudged     not known: the body was not read to its end, or the client hung up
  diverged     copies of one request that got different final answers: a replay would have said otherwise

Examples:
  onceway shadow
  onceway shadow --admin http://10.0.0.7:7402 --token-file secrets/admin-token
  onceway shadow --json | jq .routes

Exit codes: 0 shown; 1 the gateway does not answer, or is not in shadow mode; 2 wrong arguments.")]
pub struct Shadow {
    #[command(flatten)]
    gateway: Admin,
    /// Print the gateway's JSON as it is.
    #[arg(long)]
    json: bool,
}

impl Shadow {
    pub fn run(&self) -> Result<(), Failure> {
        let report = self.gateway.get("/v1/shadow").map_err(|failure| match failure {
            Failure::Failed(why) => Failure::Failed(format!("{why} (404: it is not in shadow mode)")),
            other => other,
        })?;
        tell(self.json, &report, &picture(&report))
    }
}

/// The counts, in the order of their columns.
const COUNTS: [&str; 6] = ["run", "replayed", "in_doubt", "unprotected", "unjudged", "diverged"];

fn picture(report: &Value) -> String {
    let count = |value: &Value| thousands(value.as_u64().unwrap_or_default());
    let mut rows = Vec::new();
    for (route, counts) in report["routes"].as_object().into_iter().flatten() {
        let mut row = vec![route.clone()];
        row.extend(COUNTS.map(|field| count(&counts[field])));
        let refused = counts["refused"].as_object().into_iter().flatten();
        let refused: Vec<String> = refused.map(|(code, times)| format!("{code} {}", count(times))).collect();
        row.push(if refused.is_empty() { "0".to_owned() } else { refused.join(", ") });
        rows.push(row);
    }
    let head = "route|>run|>replayed|>in doubt|>unprotected|>unjudged|>diverged|refused";
    let table = table(head, rows);
    format!(
        "nothing is enforced: {} passes everything; counted for {} s, {} keys remembered, {} forgotten\n\n{table}",
        report["region"].as_str().unwrap_or("-"),
        count(&report["seconds"]),
        count(&report["remembered"]),
        count(&report["forgotten"]),
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::picture;

    #[test]
    fn a_report_is_a_table() {
        let report = json!({
            "region": "a", "seconds": 3600, "remembered": 2, "forgotten": 0,
            "routes": {
                "charges": { "run": 1234, "replayed": 5, "refused": { "key-missing": 6, "key-reused": 1 }, "diverged": 1 },
                "-": { "unprotected": 7, "refused": {} },
            },
        });
        let text = picture(&report);
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[3], ["-", "0", "0", "0", "7", "0", "0", "0"]);
        let charges = ["charges", "1,234", "5", "0", "0", "0", "1", "key-missing", "6,", "key-reused", "1"];
        assert_eq!(lines[4], charges);
    }
}
