//! Acts before they are done: dry runs, with the expected result, and `onceway approve`.
//!
//! `gateway::authority::acts::dry_run` is the contract of the JSON: the gateway that would act
//! computes the result, and decides who may approve and for how long.

use clap::Args;
use serde_json::{Value, json};

use super::http::Admin;
use super::process::{Failure, tell};
use super::table::{list, pairs, printable, share, table, thousands, word};

/// Flag of a dry run.
#[derive(Args)]
pub struct Dry {
    /// Show the result and the obstacles; change nothing. The exit code is that of the act.
    #[arg(long)]
    pub dry_run: bool,
}

impl Dry {
    /// The act to post, marked if it is a dry run. A gateway that does not know the mark refuses
    /// all of it.
    pub fn mark(&self, mut act: Value) -> Value {
        if self.dry_run {
            act["dry_run"] = true.into();
        }
        act
    }

    /// Shows the gateway's answer to a program or a person, whom `text` tells that the act is done.
    pub fn tell(&self, as_json: bool, said: &Value, text: &str) -> Result<(), Failure> {
        if self.dry_run { tell(as_json, said, &picture(said)) } else { tell(as_json, said, text) }
    }
}

fn picture(said: &Value) -> String {
    if said["changes"] == false {
        return format!("nothing would change: it is so already (epoch {})\n", word(&said["epoch"]));
    }
    let to = if said["epoch"].is_null() { "a later one".to_owned() } else { word(&said["epoch"]) };
    let mut text = format!("would go from epoch {} to {to}\n", word(&said["from_epoch"]));
    if !list(&said["moves"]).is_empty() {
        text.push_str(&format!("\nkeys that would move\n{}", moves(&said["moves"])));
    }
    let effects: Vec<String> = list(&said["effects"]).iter().map(word).collect();
    if !effects.is_empty() {
        text.push_str(&format!("\n{}\n", effects.join("\n")));
    }
    text.push_str("\nNothing was changed.\n");
    text
}

/// Arcs that would change their owner, as a table.
pub fn moves(moves: &Value) -> String {
    let row = |moved: &Value| {
        let arcs = moved["arcs"].as_u64().map_or("-".to_owned(), thousands);
        vec![word(&moved["from"]), word(&moved["to"]), arcs, share(&moved["share"])]
    };
    table("from|to|>arcs|>share", list(moves).iter().map(row))
}

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
        tell(self.json, &said, &approved(&said))
    }
}

fn approved(said: &Value) -> String {
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::picture;

    #[test]
    fn a_dry_run_says_what_would_move_and_that_nothing_did() {
        let said = json!({
            "dry_run": true, "from_epoch": 7, "epoch": 8, "changes": true, "effects": ["eu-west would \u{1b}pause"],
            "moves": [{ "from": "eu-west", "to": "us-east", "arcs": 13107, "share": 0.2 }],
        });
        let text = picture(&said);
        for line in [
            "would go from epoch 7 to 8",
            "eu-west  us-east  13,107  20.00 %",
            "eu-west would  pause",
            "Nothing was changed.",
        ] {
            assert!(text.lines().any(|one| one == line), "{line:?} in\n{text}");
        }
        let drawn = picture(&json!({ "from_epoch": 7, "epoch": null, "changes": true }));
        assert!(drawn.starts_with("would go from epoch 7 to a later one\n"), "{drawn}");
        let same = picture(&json!({ "epoch": 7, "changes": false }));
        assert_eq!(same, "nothing would change: it is so already (epoch 7)\n");
    }
}
