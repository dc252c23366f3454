//! `onceway jobs`: the accepted requests of all regions, and acts on dead letters.
//!
//! `gateway::operator::dead_letters` is the contract of the JSON.

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::http::{Admin, segment};
use super::key::Why;
use super::process::{Failure, tell};
use super::rehearsal::Dry;
use super::table::{date, list, printable, table, word};

/// List the accepted requests of all regions that wait to be run, and the dead letters.
///
/// One gateway asks the others. A region that does not answer is named.
#[derive(Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_long_help = "\
Exit codes: 0 no dead letter, 3 there are some, or a region did not answer, 1 the gateway could not be asked.

Examples:
  onceway jobs --admin http://127.0.0.1:7402
  onceway jobs --dead --json | jq -r '.jobs[] | [.tenant, .key, .trouble] | @tsv'
  onceway jobs retry acme order-1001 --reason 'the provider is up again'
  onceway jobs drop acme order-1001 --region eu-west --reason 'the customer cancelled, ticket OPS-311'"
)]
pub struct Jobs {
    #[command(subcommand)]
    act: Option<Command>,
    /// Dead letters only.
    #[arg(long)]
    dead: bool,
    /// List only what the asked region lists itself.
    #[arg(long)]
    here: bool,
    #[command(flatten)]
    gateway: Admin,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Subcommand)]
enum Command {
    /// Give a dead letter back to the workers, its runs counted anew.
    Retry(Act),
    /// Remove a job and its stored request. If nothing happened so far, its client may send it
    /// again.
    Drop(Act),
}

#[derive(Args)]
#[command(after_long_help = "\
Exit codes: 0 done; 1 refused, or the gateway does not answer; 2 wrong arguments, or this region has no such job; 3 not possible yet, as
while a worker has it: run it again.")]
struct Act {
    /// The tenant.
    tenant: String,
    /// The idempotency key, without quotes.
    key: String,
    /// The region that accepted the request, if it is not the asked one. It has to know your token.
    #[arg(long, value_name = "NAME")]
    region: Option<String>,
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

impl Jobs {
    pub fn run(&self) -> Result<(), Failure> {
        match &self.act {
            None => self.list(),
            Some(Command::Retry(act)) => act.post("retry", "a worker runs it again"),
            Some(Command::Drop(act)) => act.post("drop", "the job and its request are gone"),
        }
    }

    fn list(&self) -> Result<(), Failure> {
        let path = if self.here { "/v1/jobs" } else { "/v1/jobs/all" };
        let page = self.gateway.get(&format!("{path}{}", if self.dead { "?state=dead" } else { "" }))?;
        let all = list(&page["jobs"]);
        let silent = page["silent"].as_object().cloned().unwrap_or_default();
        let mut text = picture(all);
        for (name, why) in &silent {
            text.push_str(&format!("{}: its jobs are unknown: {}\n", printable(name), word(why)));
        }
        tell(self.json, &page, &text)?;
        match all.iter().filter(|job| job["state"] == "dead").count() {
            0 if silent.is_empty() => Ok(()),
            0 => Err(Failure::Incomplete("not every region answered: ask again".to_owned())),
            1 => Err(Failure::Incomplete("1 dead letter waits for an operator".to_owned())),
            count => Err(Failure::Incomplete(format!("{count} dead letters wait for an operator"))),
        }
    }
}

impl Act {
    fn post(&self, act: &str, done: &str) -> Result<(), Failure> {
        let path = format!("/v1/jobs/{}/{}/{act}", segment(&self.tenant), segment(&self.key));
        let mut said = json!({ "reason": self.why.reason, "actor": self.why.who.actor });
        if let Some(region) = &self.region {
            said["region"] = json!(region);
        }
        let answer = self.gateway.target()?.act(&path, &self.dry.mark(said))?;
        let text = match self.dry.dry_run {
            true => format!("if done: {done}. Nothing was changed.\n"),
            false => format!("{done}\n"),
        };
        tell(self.json, &answer, &text)
    }
}

fn picture(all: &[Value]) -> String {
    if all.is_empty() {
        return "no accepted request waits\n".to_owned();
    }
    let row = |job: &Value| {
        let mut row = ["region", "tenant", "key", "state", "runs"].map(|field| word(&job[field])).to_vec();
        let due = if job["state"] == "dead" { "-".to_owned() } else { date(&job["next_ms"]) };
        let erased = if job["kept"] == false { "erased".to_owned() } else { date(&job["forget_ms"]) };
        row.extend([date(&job["accepted_ms"]), due, erased, word(&job["trouble"])]);
        row
    };
    table("region|tenant|key|state|>runs|accepted|due|erased|trouble", all.iter().map(row))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::picture;

    #[test]
    fn jobs_are_a_table() {
        let letter = json!({
            "tenant": "acme", "key": "k\u{1b}1", "state": "dead", "runs": 20, "accepted_ms": 0, "next_ms": 0, "forget_ms": 0,
            "kept": false, "trouble": "run 20 times",
        });
        let text = picture(&[letter]);
        assert!(
            text.contains("acme")
                && text.contains("k 1")
                && text.contains("erased")
                && text.contains("20 times")
        );
        assert!(picture(&[]).starts_with("no accepted request"));
    }
}
