//! `onceway doubts`: the keys of a region that are in doubt.
//!
//! `gateway::operator` is the contract of the JSON, and `key` acts on a listed key. The output
//! shows keys: a person who may ask an admin listener may see them. It must not judge.

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::http::Admin;
use super::key::Why;
use super::rehearsal::Dry;
use super::status::word;
use super::table::{Side, columns};
use super::{Failure, tell};

/// List the keys of a region whose effect may or may not have happened: its own attempts, and those
/// that other regions left under keys that it owns now.
#[derive(Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_long_help = "\
Exit codes: 0 none is in doubt, 3 some are, 1 the gateway could not be asked.

Examples:
  onceway doubts --admin http://127.0.0.1:7402
  onceway doubts --json | jq -r '.doubts[] | [.tenant, .key] | @tsv'

Keys of routes with recovery = \"probe\" leave the list by themselves once the upstream says what happened. For the others:
  onceway key show acme order-1001                             what is known
  onceway key settle acme order-1001 --status 201 --reason ... it happened: clients get this answer
  onceway key release acme order-1001 --reason ...             it did not: a retry runs again
  onceway doubts rule payouts --now rerun --reason ...         all of a route go by its rule of now"
)]
pub struct Doubts {
    #[command(subcommand)]
    act: Option<Command>,
    #[command(flatten)]
    gateway: Admin,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Subcommand)]
enum Command {
    Rule(Rule),
}

/// Have a region's keys in doubt of one route go by another rule from now on.
///
/// A key in doubt keeps the rule of its claim (`recovery` of its route at that time), whatever a
/// reload says. This command gives it the route's rule of now, or `park`. It is journalled for each
/// key. Each region does so for its own attempts.
#[derive(Args)]
#[command(after_long_help = "\
`rerun` runs keys again that may have happened: only for an upstream that performs a key or a token once.

Examples:
  onceway doubts rule payouts --now rerun --dry-run --reason 'the provider honours keys now'
  onceway doubts rule payouts --now rerun --reason 'the provider honours keys now, OPS-311'

Exit codes: 0 done; 1 refused, or the gateway does not answer; 2 wrong arguments, as a rule that the route does not say; 3 not possible
yet, as while the store does not answer: run it again.")]
struct Rule {
    /// The route's name.
    route: String,
    /// The rule: rerun, probe or park.
    #[arg(long, value_name = "RULE", value_parser = ["rerun", "probe", "park"])]
    now: String,
    #[command(flatten)]
    gateway: Admin,
    #[command(flatten)]
    why: Why,
    #[command(flatten)]
    dry: Dry,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

impl Rule {
    fn run(&self) -> Result<(), Failure> {
        let Why { reason, who } = &self.why;
        let act = json!({ "route": self.route, "recovery": self.now, "reason": reason, "actor": who.actor });
        let said = self.gateway.target()?.act("/v1/doubts/rule", &self.dry.mark(act))?;
        tell(self.json, &said, &change(&said))
    }
}

/// The result of `doubts rule`, for people.
fn change(said: &Value) -> String {
    let [region, route, rule] = ["region", "route", "recovery"].map(|field| word(&said[field]));
    let count = |field: &str| said[field].as_u64().unwrap_or(0);
    let (changed, same, elsewhere) = (count("changed"), count("same"), count("elsewhere"));
    let verb = if said["dry_run"] == true { "would go" } else { "go" };
    let mut text = format!("keys in doubt of {route} in {region} that {verb} by `{rule}` now: {changed}\n");
    if same > 0 {
        text.push_str(&format!("that went by it before: {same}\n"));
    }
    if elsewhere > 0 {
        text.push_str(&format!(
            "attempts of other regions, which stay as they are: {elsewhere} (ask there, or settle or release each key)\n"
        ));
    }
    if said["dry_run"] == true {
        text.push_str("Nothing was changed.\n");
    }
    text
}

impl Doubts {
    pub fn run(&self) -> Result<(), Failure> {
        match &self.act {
            None => self.list(),
            Some(Command::Rule(rule)) => rule.run(),
        }
    }

    fn list(&self) -> Result<(), Failure> {
        let (region, all) = self.gateway.list("/v1/doubts?limit=1000", "doubts")?;
        tell(self.json, &json!({ "region": region, "doubts": all }), &picture(&all))?;
        match all.len() {
            0 => Ok(()),
            1 => Err(Failure::Incomplete(format!("1 key is in doubt in {}", word(&region)))),
            count => Err(Failure::Incomplete(format!("{count} keys are in doubt in {}", word(&region)))),
        }
    }
}

fn picture(all: &[Value]) -> String {
    if all.is_empty() {
        return "no key is in doubt\n".to_owned();
    }
    let header =
        ["tenant", "key", "since", "route", "origin", "token", "status", "attempts", "rule", "over in"];
    let mut rows = vec![header.map(str::to_owned).to_vec()];
    for doubt in all {
        let left = doubt["over_in_ms"].as_u64().unwrap_or(0);
        let over = if left == 0 { "over".to_owned() } else { format!("{} s", left.div_ceil(1_000)) };
        let mut row = vec![word(&doubt["tenant"]), word(&doubt["key"]), date(&doubt["since_ms"])];
        row.extend(
            ["route", "origin", "token", "status", "attempts", "recovery"].map(|field| word(&doubt[field])),
        );
        row.push(over);
        rows.push(row);
    }
    use Side::{Left, Right};
    columns(&[Left, Left, Left, Left, Left, Left, Right, Right, Left, Right], &rows)
}

/// Milliseconds since 1970 as a date.
pub fn date(millis: &Value) -> String {
    let Some(at) = millis.as_u64() else { return "-".to_owned() };
    let at = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_millis(at);
    httpdate::fmt_http_date(at)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::picture;

    #[test]
    fn doubts_are_a_table() {
        let doubt = json!({
            "tenant": "acme", "key": "order-\u{1b}[2J1", "since_ms": 1_767_225_600_000_i64, "route": "payouts", "origin": "eu-west#1",
            "token": "3.1", "status": null, "attempts": 1, "recovery": "rerun 3", "over_in_ms": 1_200,
        });
        let text = picture(&[doubt]);
        let line = text.lines().nth(1).unwrap();
        for part in [
            "acme",
            "order- [2J1",
            "Thu, 01 Jan 2026 00:00:00 GMT",
            "payouts",
            "eu-west#1",
            "3.1",
            "rerun 3",
            "2 s",
        ] {
            assert!(line.contains(part), "{part} in {line}");
        }
        assert_eq!(picture(&[]), "no key is in doubt\n");
    }
}
