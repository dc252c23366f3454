//! `onceway config explain`: the meaning of the configuration's keys.
//!
//! `config::reference` reads the reference files, which hold all of it.

use clap::Args;
use serde_json::{Value, json};

use super::process::{Failure, print};
use super::table::pairs;
use crate::config::reference::{self, Entry};

/// Explain a key: its purpose, its default, and its allowed values; without a key, list all of
/// them.
///
/// The words are those of the reference files in config/, the bounds those of the reader that a
/// gateway uses.
#[derive(Args)]
#[command(after_long_help = "\
Examples:
  onceway config explain                     every key, by file
  onceway config explain failover.lease
  onceway config explain hold                the end of a name is enough
  onceway config explain --json | jq '.[] | select(.default != null)'

Exit codes: 0 explained; 2 there is no such key.")]
pub struct Explain {
    /// The key with its tables, or the end of that.
    #[arg(value_name = "KEY")]
    key: Option<String>,
    /// Print JSON: a list of objects with file, key, default, required, example, must_be and why.
    #[arg(long)]
    json: bool,
}

impl Explain {
    pub fn run(&self) -> Result<(), Failure> {
        let entries = match &self.key {
            None => reference::entries(),
            Some(key) => reference::find(key).map_err(|near| unknown(key, near.as_deref()))?,
        };
        let text = match (self.json, &self.key) {
            (true, _) => format!("{:#}\n", Value::Array(entries.iter().map(object).collect())),
            (false, Some(_)) => entries.iter().map(paragraph).collect::<Vec<_>>().join("\n"),
            (false, None) => list(&entries),
        };
        print(&text)
    }
}

fn unknown(key: &str, near: Option<&str>) -> Failure {
    let advice = match near {
        Some(near) => format!("did you mean {near}?"),
        None => "`onceway config explain` lists all".to_owned(),
    };
    Failure::Bad(format!("no key of the configuration is called {key:?}: {advice}"))
}

fn object(entry: &Entry) -> Value {
    json!({
        "file": entry.file, "key": entry.path, "default": entry.shown_default(), "example": entry.value,
        "required": reference::is_required(entry), "must_be": reference::must_be(entry), "why": entry.why,
    })
}

fn default(entry: &Entry) -> Option<&str> {
    entry.shown_default().or_else(|| reference::is_required(entry).then_some("required"))
}

fn paragraph(entry: &Entry) -> String {
    let mut rows = vec![("  default", default(entry).unwrap_or("none").to_owned())];
    rows.extend((entry.shown_default() != Some(&entry.value)).then(|| ("  example", entry.value.clone())));
    rows.extend(reference::must_be(entry).map(|words| ("  must be", words)));
    rows.push(("  in", entry.file.to_owned()));
    format!("{}\n{}{}", entry.path, pairs(rows), wrapped(&entry.why))
}

/// The text in indented lines of at most 100 characters.
fn wrapped(text: &str) -> String {
    const WIDTH: usize = 98;
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.is_empty() => line.push_str(word),
            Some(line) if line.chars().count() + 1 + word.chars().count() <= WIDTH => {
                line.push(' ');
                line.push_str(word);
            }
            Some(_) | None => lines.push(word.to_owned()),
        }
    }
    lines.into_iter().filter(|line| !line.is_empty()).map(|line| format!("  {line}\n")).collect()
}

fn list(entries: &[Entry]) -> String {
    let mut files: Vec<&str> = entries.iter().map(|entry| entry.file).collect();
    files.dedup();
    let of_file = |file: &&str| {
        let here: Vec<_> = entries.iter().filter(|entry| entry.file == *file).collect();
        let names: Vec<String> = here.iter().map(|entry| format!("  {}", entry.path)).collect();
        let values = here.iter().map(|entry| default(entry).unwrap_or("-").to_owned());
        format!("{file}\n{}", pairs(names.iter().map(String::as_str).zip(values)))
    };
    let lists: Vec<String> = files.iter().map(of_file).collect();
    format!(
        "{}\nThe second column is the default; what is required must stand wherever its table does, unless its own text says when. `onceway config explain KEY` says more.\n",
        lists.join("\n")
    )
}
