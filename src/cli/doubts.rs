//! `onceway doubts`: the keys in doubt of all regions, and the act on those of a route.
//!
//! `gateway::operator::doubt_lists` is the contract of the JSON. A region that did not answer is
//! told: nobody may read its silence as "none".

use clap::{Args, Subcommand};
use serde_json::{Map, Value, json};

use super::http::{Admin, Approval};
use super::key::Why;
use super::process::{Failure, tell};
use super::rehearsal::Dry;
use super::table::{date, list, printable, span, word};

/// List the keys of all regions whose effect may or may not have happened, each once, with what is
/// known of it and the commands that end it.
///
/// One gateway asks the others. A region that does not answer is named.
#[derive(Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_long_help = "\
Exit codes: 0 none is in doubt, 3 some are, or a region did not answer, 1 the gateway could not be asked.

Examples:
  onceway doubts --admin http://127.0.0.1:7402
  onceway doubts --json | jq -r '.doubts[] | [.tenant, .key, .owner] | @tsv'

Keys whose rule is `probe` leave the list by themselves once the upstream says what happened. For the others:
  onceway key settle acme order-1001 --status 201 --body '...' --reason ...  it happened: clients get this answer
  onceway key release acme order-1001 --reason ...                           it did not: a retry runs again
  onceway doubts rule payouts --now rerun --reason ...                       all of a route go by its rule of now"
)]
pub struct Doubts {
    #[command(subcommand)]
    act: Option<Command>,
    #[command(flatten)]
    gateway: Admin,
    /// List only what the asked region lists itself.
    #[arg(long)]
    here: bool,
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
    approval: Approval,
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
        let said =
            self.gateway.target()?.approved(&self.approval).act("/v1/doubts/rule", &self.dry.mark(act))?;
        tell(self.json, &said, &change(&said))
    }
}

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
        let path = if self.here { "/v1/doubts?limit=1000" } else { "/v1/doubts/all?limit=1000" };
        let (mut region, mut at, mut all, mut silent) = (Value::Null, Value::Null, Vec::new(), Map::new());
        self.gateway.pages(path, |page| {
            (region, at) = (page["region"].clone(), page["at_ms"].clone());
            all.extend_from_slice(list(&page["doubts"]));
            silent.extend(page["silent"].as_object().cloned().unwrap_or_default());
            Ok(true)
        })?;
        let mut text = picture(&all, at.as_u64());
        for (name, why) in &silent {
            text.push_str(&format!("{}: its doubts are unknown: {}\n", printable(name), word(why)));
        }
        tell(self.json, &json!({ "region": region, "doubts": all, "silent": silent }), &text)?;
        let listed = if self.here { format!(" in {}", word(&region)) } else { String::new() };
        match (all.len(), silent.len()) {
            (0, 0) => Ok(()),
            (0, _) => Err(Failure::Incomplete("not every region answered: ask again".to_owned())),
            (1, _) => Err(Failure::Incomplete(format!("1 key is in doubt{listed}"))),
            (count, _) => Err(Failure::Incomplete(format!("{count} keys are in doubt{listed}"))),
        }
    }
}

fn picture(all: &[Value], now: Option<u64>) -> String {
    if all.is_empty() {
        return "no key is in doubt\n".to_owned();
    }
    all.iter().map(|doubt| entry(doubt, now)).collect::<Vec<_>>().join("\n")
}

fn entry(doubt: &Value, now: Option<u64>) -> String {
    let [tenant, key, route, owner, origin, token, rule] =
        ["tenant", "key", "route", "owner", "origin", "token", "recovery"].map(|field| word(&doubt[field]));
    let age = now.zip(doubt["since_ms"].as_u64()).map(|(now, since)| span(now.saturating_sub(since) / 1_000));
    let age = age.map_or(String::new(), |age| format!(" ({age} ago)"));
    let said = match (doubt["status"].as_u64(), doubt["excerpt"].as_str()) {
        (None, _) => "no answer came".to_owned(),
        (Some(status), None) => format!("the upstream said {status}"),
        (Some(status), Some(_)) => format!("the upstream said {status}: {}", word(&doubt["excerpt"])),
    };
    let over = match doubt["over_in_ms"].as_u64().unwrap_or(0) {
        0 => "over".to_owned(),
        left => format!("over in {} s", left.div_ceil(1_000)),
    };
    let which = format!("{} {}", quoted(&tenant), quoted(&key));
    format!(
        "{tenant} {key}: route {route}, attempt {token} of {origin}, owner {owner}\n  \
         since {}{age}, rule {rule}, attempts {}, the last is {over}: {said}\n  \
         it happened:      onceway key settle {which} --status 201 --body '...' --reason '...'\n  \
         it did not:       onceway key release {which} --reason '...'\n",
        date(&doubt["since_ms"]),
        word(&doubt["attempts"]),
    )
}

/// A word of a command line, quoted for a shell where it has to be.
fn quoted(text: &str) -> String {
    let plain = |one: char| one.is_ascii_alphanumeric() || "-_./:@%+=,".contains(one);
    if !text.is_empty() && !text.starts_with('-') && text.chars().all(plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{picture, quoted};

    #[test]
    fn a_doubt_says_what_is_known_and_what_ends_it() {
        let since = 1_767_225_600_000_u64;
        let doubt = json!({
            "tenant": "acme", "key": "order-\u{1b}[2J1", "since_ms": since, "route": "payouts", "owner": "us-east",
            "origin": "eu-west#1", "token": "3.2", "status": 500, "excerpt": "the ledger\nis locked", "attempts": 2,
            "recovery": "rerun 3", "over_in_ms": 1_200,
        });
        let now = Some(since + 750_000);
        let text = picture(std::slice::from_ref(&doubt), now);
        for part in [
            "acme order- [2J1: route payouts, attempt 3.2 of eu-west#1, owner us-east\n",
            "since Thu, 01 Jan 2026 00:00:00 GMT (12 min ago), rule rerun 3, attempts 2, the last is over in 2 s: ",
            "the upstream said 500: the ledger is locked\n",
            "onceway key settle acme 'order- [2J1' --status 201",
            "it did not:       onceway key release acme 'order- [2J1' --reason",
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
        assert_eq!(picture(&[], now), "no key is in doubt\n");
    }

    #[test]
    fn a_key_is_quoted_for_a_shell() {
        for (key, expected) in [
            ("order-1", "order-1"),
            ("a b", "'a b'"),
            ("it's", "'it'\\''s'"),
            ("-x", "'-x'"),
            ("$(x)", "'$(x)'"),
            ("", "''"),
        ] {
            assert_eq!(quoted(key), expected);
        }
    }
}
