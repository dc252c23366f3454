//! `onceway key`: one key as its region's store shows it, and ending an attempt in doubt by hand.
//!
//! `gateway::operator` decides and journals; `doubts` lists keys that may need it.

use std::path::PathBuf;

use clap::Args;
use serde_json::{Value, json};

use super::http::{Admin, Approval, segment};
use super::process::{Failure, print, tell};
use super::rehearsal::Dry;
use super::table::{date, list, pairs, table, word, words};

/// The key, and the gateway to ask.
#[derive(Args)]
struct Which {
    /// The tenant.
    tenant: String,
    /// The idempotency key, without quotes.
    key: String,
    #[command(flatten)]
    gateway: Admin,
    /// Print the gateway's JSON as it is.
    #[arg(long)]
    json: bool,
}

/// Answer "what does this region know of one key?": its rows, and acts on it by hand.
#[derive(Args)]
#[command(after_long_help = "\
Example:
  onceway key show acme order-1001 --admin http://127.0.0.1:7402

Exit codes: 0 shown; 1 the gateway does not answer; 2 wrong arguments; 3 not possible yet, as while the store does not answer: run it
again.")]
pub struct Show {
    #[command(flatten)]
    which: Which,
}

/// Name and reason of an act.
#[derive(Args)]
pub(super) struct Why {
    /// Reason of the act, journalled with it in the same transaction.
    #[arg(long, value_name = "TEXT")]
    pub(super) reason: String,
    #[command(flatten)]
    pub(super) who: Who,
}

/// Name of the acting person.
#[derive(Args)]
pub(super) struct Who {
    /// Name of the acting person, journalled with the act.
    #[arg(long, value_name = "NAME", env = "USER", default_value_t = this_user())]
    pub(super) actor: String,
}

/// The user's number in the system, if nothing names the user, as in many containers.
fn this_user() -> String {
    format!("uid {}", rustix::process::getuid().as_raw())
}

/// Settle: the effect happened. Store this answer, which every retry gets from now on.
#[derive(Args)]
#[command(after_long_help = "\
Only a key in doubt can be settled, once its attempt is surely over. The upstream is not asked: make sure there that the effect
happened. It cannot be taken back. Any region passes it on to the key's owner if you have a token that the owner knows.

Example:
  onceway key settle acme order-1001 --status 201 --header 'content-type: application/json' \\
      --body '{\"id\":\"po_17\"}' --reason 'provider ledger shows po_17, ticket OPS-311'

Exit codes: 0 settled; 1 refused, or the gateway does not answer; 2 wrong arguments; 3 not possible yet, as while the attempt may still be
running: run it again.")]
pub struct Settle {
    #[command(flatten)]
    which: Which,
    /// The status for clients, 200 to 599.
    #[arg(long, value_name = "STATUS")]
    status: u16,
    /// A header of the answer; may be repeated.
    #[arg(long = "header", value_name = "NAME: VALUE")]
    headers: Vec<String>,
    /// The answer's body; '' for an empty one. This or --body-file is needed.
    #[arg(long, value_name = "TEXT", conflicts_with = "body_file")]
    body: Option<String>,
    /// A file with the answer's body, in UTF-8, at most 2 MiB.
    #[arg(long, value_name = "FILE")]
    body_file: Option<PathBuf>,
    #[command(flatten)]
    why: Why,
    #[command(flatten)]
    dry: Dry,
}

/// Release: the effect did not happen. Nothing is sent now, but a retry of the client runs again.
#[derive(Args)]
#[command(after_long_help = "\
Only a key in doubt can be released, once its attempt is surely over. The upstream is not asked: if the effect did happen after
all, the next retry performs it a second time. Any region passes it on to the key's owner if you have a token that the owner knows.

Example:
  onceway key release acme order-1001 --reason 'provider has no such payout, ticket OPS-311'

Exit codes: 0 released; 1 refused, or the gateway does not answer; 2 wrong arguments; 3 not possible yet, as while the attempt may still be
running: run it again.")]
pub struct Release {
    #[command(flatten)]
    which: Which,
    #[command(flatten)]
    why: Why,
    #[command(flatten)]
    approval: Approval,
    #[command(flatten)]
    dry: Dry,
}

impl Show {
    pub fn run(&self) -> Result<(), Failure> {
        let which = &self.which;
        which.show(&which.gateway.target()?.look(&which.path(""))?)
    }
}

impl Release {
    pub fn run(&self) -> Result<(), Failure> {
        let Release { which, why, approval, dry } = self;
        let act = json!({ "reason": why.reason, "actor": why.who.actor });
        let target = which.gateway.target()?.approved(approval);
        which.show(&target.act(&which.path("/release"), &dry.mark(act))?)?;
        if dry.dry_run {
            return which.say("would be released. Nothing was changed.");
        }
        which.say("released: nothing was sent; a retry of the client runs again")
    }
}

impl Settle {
    pub fn run(&self) -> Result<(), Failure> {
        let mut headers = Vec::new();
        for header in &self.headers {
            let Some((name, value)) = header.split_once(':') else {
                return Err(Failure::Bad(format!("--header {header:?} must be written 'name: value'")));
            };
            headers.push((name.trim(), value.trim()));
        }
        let body = match (&self.body, &self.body_file) {
            (Some(text), _) => text.clone(),
            (None, None) => {
                let why = "say what body clients get: --body TEXT or --body-file FILE; for an empty one write --body ''";
                return Err(Failure::Bad(why.to_owned()));
            }
            (None, Some(path)) => std::fs::read_to_string(path).map_err(|error| {
                Failure::Bad(format!("--body-file {}: cannot be read: {error}", path.display()))
            })?,
        };
        let Settle { which, why, status, dry, .. } = self;
        let act = json!({
            "reason": why.reason, "actor": why.who.actor, "status": status, "headers": headers, "body": body,
        });
        which.show(&which.gateway.target()?.act(&which.path("/settle"), &dry.mark(act))?)?;
        if dry.dry_run {
            return which.say("would be settled with that answer. Nothing was changed.");
        }
        which.say("settled: every retry is given this answer from now on")
    }
}

impl Which {
    fn path(&self, act: &str) -> String {
        format!("/v1/keys/{}/{}{act}", segment(&self.tenant), segment(&self.key))
    }

    fn show(&self, status: &Value) -> Result<(), Failure> {
        tell(self.json, status, &picture(status))
    }

    /// Prints for a person. With --json it prints nothing more.
    fn say(&self, text: &str) -> Result<(), Failure> {
        if self.json { Ok(()) } else { print(&format!("\n{text}\n")) }
    }
}

fn picture(status: &Value) -> String {
    let said = status["excerpt"].as_str().map(|_| ("said", word(&status["excerpt"])));
    let [state, owner, digest] = ["state", "owner", "digest"].map(|field| word(&status[field]));
    let order = words(&status["order"]);
    let lines = [("state", state), ("owner", owner), ("order", order), ("digest", digest)];
    let mut text = pairs(lines.into_iter().chain(said));
    let row = |row: &Value| {
        let mut cells = ["origin", "state", "token", "status"].map(|field| word(&row[field])).to_vec();
        let left = row["hold_left_ms"].as_u64();
        cells.push(left.map_or("-".to_owned(), |left| format!("{} s", left.div_ceil(1_000))));
        cells.extend([date(&row["expires_ms"]), word(&row["request_id"])]);
        cells
    };
    let (rows, journal) = (list(&status["rows"]), list(&status["journal"]));
    if !rows.is_empty() {
        let table = table("origin|state|token|status|hold left|expires|request", rows.iter().map(row));
        text.push_str(&format!("\n{table}"));
    }
    let act = |entry: &Value| {
        let mut cells = vec![date(&entry["at_ms"])];
        cells.extend(["kind", "token", "actor", "reason"].map(|field| word(&entry[field])));
        cells
    };
    if !journal.is_empty() {
        text.push_str(&format!("\n{}", table("at|act|token|actor|reason", journal.iter().map(act))));
    }
    text
}
