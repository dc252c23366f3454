//! `onceway approve`: prints what another operator asks for, and approves it.
//!
//! The gateway decides who may approve and for how long.

use clap::Args;
use serde_json::{Value, json};

use super::http::Admin;
use super::process::{Failure, tell};
use super::rehearsal::Dry;
use super::table::{pairs, printable, word};

/// Approve an act that another operator asks for, and print what it is.
///
/// An act that needs a second person (`[admin] second_person` in the region file) is refused with a
/// request. Its operator gives you the request; you give back the approval that this prints, if you
/// agree with what it prints. It is for that act alone, as long as the key or the epoch stays as it
/// was, for 15 minutes.
#[derive(Args)]
#[command(after_long_help = "\
It takes a token of your own whose role is \"approve\". Ask the same gateway process: another one, or one that was started anew, does not
know the approval.

Example:
  onceway approve eyJyZWdpb24iOi... --token-file ~/.onceway-token --dry-run     only says what would be approved

Exit codes: 0 approved; 1 refused, or the gateway does not answer; 2 wrong arguments, as what is no request.")]
pub struct Approve {
    /// The request that the refused act printed.
    #[arg(value_name = "REQUEST")]
    request: String,
    #[command(flatten)]
    gateway: Admin,
    #[command(flatten)]
    dry: Dry,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

impl Approve {
    pub fn run(&self) -> Result<(), Failure> {
        let act = self.dry.mark(json!({ "request": self.request }));
        let said = self.gateway.target()?.act("/v1/admin/approve", &act)?;
        tell(self.json, &said, &picture(&said))
    }
}

fn picture(said: &Value) -> String {
    let named = [("act", "path"), ("region", "region"), ("asked by", "actor"), ("finds", "finds")];
    let named = named.map(|(name, field)| (name.to_owned(), &said[field])).into_iter();
    let act = said["act"].as_object().into_iter().flatten();
    let all: Vec<_> = named.chain(act.map(|(name, value)| (printable(name), value))).collect();
    let mut text = pairs(all.iter().map(|(name, value)| (name.as_str(), word(value))));
    match said["approval"].as_str() {
        Some(approval) => text.push_str(&format!(
            "\napproved for 15 minutes: its operator runs the act again with\n  --approval {}\n",
            printable(approval)
        )),
        None => text.push_str("\nNothing was approved.\n"),
    }
    text
}
