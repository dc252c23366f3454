//! Dry runs, as people see them: the expected result of an act, and that nothing was changed.
//!
//! `gateway::authority::acts::dry_run` is the contract of the JSON: the gateway that would act
//! computes the result.

use clap::Args;
use serde_json::Value;

use super::process::{Failure, tell};
use super::table::{list, share, table, thousands, word};

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
