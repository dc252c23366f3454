//! `onceway audit`: keys that ran at risk, keys that ran twice, late answers, the life of one key.
//!
//! `gateway::operator::audit` is the contract of the JSON: the gateway says which runs are doubles.
//! The output shows keys: a person who may ask an admin listener may see them.

mod compare;
mod export;
mod judge;
mod ledger;

use std::collections::BTreeSet;

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::http::{Admin, segment};
use super::process::{Failure, tell};
use super::table::{Side, columns, date, list, printable, table, word};
use crate::gateway::operator::instant::stamp;

/// List the keys that a region ran although a lost one may have run them too, and the keys that ran
/// twice by its journal.
///
/// A key is listed if only the window allowed its run. Once the lost region is back its records are
/// compared: `clean` means that no other run is known, `double` that there are two answers,
/// `possible` that there are two records and one has no answer. The journal lists doubles, however
/// they were found, and `late` answers: those that came after their attempt had been released or
/// taken over.
///
/// Two answers are a double whatever their claims say of a risk. There are two explanations: `risk`
/// (one of the two ran at risk) and `over` (one of them knew of the other). Under `over` a route's
/// recovery, or an operator, held the other attempt for ended. A double without an explanation is a
/// bug.
#[derive(Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_long_help = "\
Exit codes: 0 no double is known, 3 there is one or may be, 1 the gateway could not be asked.

Examples:
  onceway audit                            each region lists its own runs: ask one gateway of each
  onceway audit --json | jq '.runs[] | select(.verdict != \"clean\")'
  onceway audit key acme order-1001        the life of one key over all regions
  onceway audit export > onceway.csv       everything that is known of each key
  onceway audit compare provider.csv --tenant acme   what a provider's ledger says differently"
)]
pub struct Audit {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    gateway: Admin,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// Days of the journal to list, back from now.
    #[arg(long, value_name = "N", default_value = "30", value_parser = clap::value_parser!(u64).range(1..=100_000))]
    days: u64,
}

#[derive(Subcommand)]
enum Command {
    Key(Key),
    Export(export::Export),
    Compare(compare::Compare),
}

/// Answer "what happened to one key, in all regions?": records with their claims' epochs and
/// attempts, answers, and the journals' entries.
#[derive(Args)]
#[command(after_long_help = "\
Exit codes: 0 told; 1 the gateway does not answer; 2 wrong arguments; 3 not possible yet, as while the store does not answer: run it again.")]
struct Key {
    /// The tenant.
    tenant: String,
    /// The key.
    key: String,
    #[command(flatten)]
    gateway: Admin,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

impl Audit {
    pub fn run(&self) -> Result<(), Failure> {
        match &self.command {
            Some(Command::Key(key)) => key.run(),
            Some(Command::Export(export)) => export.run(),
            Some(Command::Compare(compare)) => compare.run(),
            None => self.list(),
        }
    }

    fn list(&self) -> Result<(), Failure> {
        let (region, runs) = self.gateway.list("/v1/audit?limit=1000", "runs")?;
        let path = format!("/v1/audit/journal?limit=1000&days={}", self.days);
        let (_, findings) = self.gateway.list(&path, "findings")?;
        let doubles = runs.iter().filter(|run| run["verdict"] != "clean").count();
        let journalled: BTreeSet<(String, String)> =
            findings.iter().map(|one| (word(&one["tenant"]), word(&one["key"]))).collect();
        let unexplained = findings.iter().filter(|one| one["explained"] == "unexplained").count();
        let all = json!({
            "region": region, "runs": runs, "doubles": doubles, "findings": findings,
            "unexplained": unexplained,
        });
        tell(self.json, &all, &(picture(&runs) + &journal(&findings)))?;
        let region = word(&region);
        if unexplained > 0 {
            return Err(Failure::Incomplete(format!(
                "{unexplained} keys ran twice, and nothing explains it, by the journal of {region}: a bug of onceway. Keep `onceway audit export` and report it"
            )));
        }
        match (doubles, journalled.len()) {
            (0, 0) => Ok(()),
            (0, count) => Err(Failure::Incomplete(format!(
                "{count} keys ran twice, or may have, by the journal of {region}"
            ))),
            (count, _) => Err(Failure::Incomplete(format!(
                "{count} keys ran twice, or may have, in {region} and elsewhere"
            ))),
        }
    }
}

impl Key {
    fn run(&self) -> Result<(), Failure> {
        let path = format!("/v1/audit/{}/{}", segment(&self.tenant), segment(&self.key));
        let life = self.gateway.target()?.look(&path)?;
        tell(self.json, &life, &story(&life))
    }
}

fn picture(runs: &[Value]) -> String {
    if runs.is_empty() {
        return "no key ran at risk\n".to_owned();
    }
    let row = |run: &Value| {
        let joined = |words: Vec<String>| if words.is_empty() { "-".to_owned() } else { words.join(",") };
        let others = list(&run["others"]).iter().map(|one| word(&one["origin"])).collect();
        let risk = list(&run["risk"]).iter().map(word).collect();
        let mut row = ["tenant", "key", "route"].map(|field| word(&run[field])).to_vec();
        row.extend(["token", "state"].map(|field| word(&run["own"][field])));
        row.extend([joined(risk), joined(others), word(&run["verdict"])]);
        row
    };
    table("tenant|key|route|token|state|risk|others|verdict", runs.iter().map(row))
}

/// Findings of the journal, as text; empty if it has none.
fn journal(findings: &[Value]) -> String {
    if findings.is_empty() {
        return String::new();
    }
    let row = |finding: &Value| {
        let explained = match finding["explained"].as_str() {
            Some("unexplained") => "NOTHING: A BUG".to_owned(),
            _ => word(&finding["explained"]),
        };
        let mut row = vec![date(&finding["at_ms"]), word(&finding["kind"]), explained];
        row.extend(["tenant", "key", "token", "reason"].map(|field| word(&finding[field])));
        row
    };
    let table = table("when|kind|explained by|tenant|key|token|what", findings.iter().map(row));
    format!("\nby the journal\n{table}")
}

fn story(life: &Value) -> String {
    let mut text = String::new();
    for (region, status) in life["regions"].as_object().into_iter().flatten() {
        let [state, owner] = ["state", "owner"].map(|field| word(&status[field]));
        text.push_str(&format!("{}: {state}, owner {owner}\n", printable(region)));
    }
    let row = |event: &Value| {
        let mut row = vec![event["at_ms"].as_i64().map_or("-".to_owned(), stamp)];
        row.extend(["region", "token", "what", "text"].map(|field| word(&event[field])));
        row
    };
    let rows: Vec<_> = list(&life["life"]).iter().map(row).collect();
    if !rows.is_empty() {
        text.push('\n');
        text.push_str(&columns(&[Side::Left; 5], &rows));
    }
    for (region, why) in life["silent"].as_object().into_iter().flatten() {
        text.push_str(&format!("{region} did not answer ({}): what it knows is missing here\n", word(why)));
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{journal, picture, story};

    #[test]
    fn doubles_stand_out() {
        let run = json!({
            "tenant": "acme", "key": "k1", "route": "emails", "risk": ["eu-west"], "verdict": "double",
            "own": { "token": "3.1", "state": "settled" }, "others": [{ "origin": "eu-west#1", "state": "settled" }],
        });
        let text = picture(&[run]);
        assert!(
            text.lines().nth(1).is_some_and(|line| line.contains("double") && line.contains("eu-west#1")),
            "{text}"
        );
        assert_eq!(picture(&[]), "no key ran at risk\n");
    }

    #[test]
    fn journal_findings_print_as_a_table_that_marks_bugs() {
        let finding = |kind: &str, explained: Option<&str>| {
            json!({
                "at_ms": 1_767_225_600_000_i64, "kind": kind, "explained": explained, "tenant": "acme", "key": "k\u{1b}1",
                "token": "3.1", "actor": null, "reason": "answered 201, too late: by then the attempt had been released",
            })
        };
        let text = journal(&[finding("late", None)]);
        for part in ["by the journal", "late", "acme", "k 1", "3.1", "too late", "01 Jan 2026"] {
            assert!(text.contains(part), "{part} in {text}");
        }
        assert_eq!(journal(&[]), "");
        let text = journal(&[finding("double", Some("risk")), finding("double", Some("unexplained"))]);
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[2].contains("explained by"), "{text}");
        assert!(lines[3].contains(" risk ") && !lines[3].contains("A BUG"), "{text}");
        assert!(lines[4].contains("NOTHING: A BUG"), "{text}");
    }

    #[test]
    fn a_keys_life_is_chronological_and_names_silent_regions() {
        let event = |at: Option<i64>, what: &str| json!({ "at_ms": at, "region": "us", "token": "3.1", "what": what, "text": "of\u{1b} it" });
        let life = json!({
            "regions": { "us": { "state": "settled", "owner": "us", "rows": [], "journal": [] } },
            "life": [event(Some(1_767_225_600_000), "claimed"), event(None, "settled")],
            "silent": { "eu": "no reply" },
        });
        let text = story(&life);
        for part in [
            "us: settled, owner us\n",
            "2026-01-01T00:00:00.000Z  us  3.1  claimed  of  it\n",
            "-                         us  3.1  settled  of  it\n",
            "eu did not answer",
        ] {
            assert!(text.contains(part), "{part:?} in\n{text}");
        }
    }
}
