//! `onceway coverage`: state-changing requests without a key's protection; a check for CI. And
//! `onceway shadow`: counts of the decisions that a gateway in shadow mode would have made.
//!
//! `gateway::telemetry::coverage` counts and classifies. This command merges gateways, decides if
//! the check fails (it does if one cannot be asked), and suggests entries for `routes.toml`.
//! `gateway::shadow` counts, too; a field that a gateway does not send counts as nothing.

use std::collections::BTreeMap;

use clap::Args;
use serde_json::{Value, json};

use super::http::{Admin, By};
use super::process::{Failure, block_on, print, tell};
use super::table::{printable, table, thousands};

/// List state-changing requests that gateways saw without key protection; fails if there are any.
#[derive(Args)]
#[command(after_long_help = "\
What counts: POST, PATCH and methods that HTTP does not know, where no route took the request, or where a route with
key = \"optional\" got it without a key. Listed apart, and counted with --strict only: PUT and DELETE, which are idempotent by
their method, and routes that say key = \"off\". A path is shown by its shape: {} stands for what may be an id.

Gateways remember in memory since their start, each for itself: send your tests through them first, and ask all of them.

Exit codes:
  0  nothing unprotected was seen       1  something was        2  wrong arguments
  3  nothing is known: a gateway cannot be asked, or has seen no state-changing request at all

Examples:
  onceway coverage                                              the demo's first region
  onceway coverage --admin http://10.0.0.7:7402 --admin http://10.1.0.7:7402 --token-file secrets/admin-token
  onceway coverage --strict                                     PUT, DELETE and key = \"off\" count too
  onceway coverage --all                                        what is protected as well
  onceway coverage --json | jq .unprotected")]
pub struct Coverage {
    /// A gateway's admin listener; may be repeated, and the reports are added up.
    #[arg(long, env = "ONCEWAY_ADMIN", value_name = "URL", default_value = "http://127.0.0.1:7402")]
    admin: Vec<String>,
    #[command(flatten)]
    by: By,
    /// List protected requests too.
    #[arg(long)]
    all: bool,
    /// Count PUT, DELETE and routes with key = "off" as unprotected.
    #[arg(long)]
    strict: bool,
    /// Print the merged report as JSON.
    #[arg(long)]
    json: bool,
}

/// One line of a report; its order is that of the table.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Line {
    path: String,
    method: String,
    route: Option<String>,
    protection: String,
    refused: bool,
}

/// Number of times that each line was seen.
type Lines = BTreeMap<Line, u64>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    Unprotected,
    /// Not protected, but idempotent by its method or declared off.
    Apart,
    Protected,
}

impl Line {
    /// Reads a line as a gateway wrote it; `None` if it is not one.
    fn read(value: &Value) -> Option<(Self, u64)> {
        let text = |field: &str| value[field].as_str().map(printable);
        let line = Self {
            path: text("path")?,
            method: text("method")?,
            route: text("route"),
            protection: text("protection")?,
            refused: value["refused"].as_bool()?,
        };
        Some((line, value["count"].as_u64()?))
    }

    fn class(&self, strict: bool) -> Class {
        match self.protection.as_str() {
            "protected" => Class::Protected,
            "off" if !strict => Class::Apart,
            _ if !strict && ["PUT", "DELETE"].contains(&self.method.as_str()) => Class::Apart,
            _ => Class::Unprotected,
        }
    }

    fn describe(&self) -> String {
        match (self.protection.as_str(), &self.route, self.refused) {
            ("protected", ..) => "protected".to_owned(),
            ("optional-without-key", ..) => "came without a key, passed".to_owned(),
            ("off", ..) => "key = \"off\"".to_owned(),
            (_, _, true) => "no route, refused".to_owned(),
            (_, _, false) => "no route, passed".to_owned(),
        }
    }
}

impl Coverage {
    pub fn run(&self) -> Result<(), Failure> {
        let mut lines = Lines::new();
        let mut full = false;
        for admin in &self.admin {
            let target = self.by.target(admin)?;
            let answer = block_on(async {
                let asked = target.fetch("/v1/coverage").await;
                asked.map_err(|error| Failure::Incomplete(format!("{error:#}")))
            })?;
            let wrong = || Failure::Incomplete(format!("{admin} answered no report of coverage"));
            let report: Value = serde_json::from_slice(&answer).map_err(|_| wrong())?;
            full |= report["full"].as_bool().ok_or_else(wrong)?;
            for value in report["seen"].as_array().ok_or_else(wrong)? {
                let (line, count) = Line::read(value).ok_or_else(wrong)?;
                *lines.entry(line).or_default() += count;
            }
        }
        let found = self.of(&lines, Class::Unprotected).count();
        print(&if self.json { self.as_json(&lines, full) } else { self.as_text(&lines, full) })?;
        match (found, lines.is_empty()) {
            (_, true) => Err(Failure::Incomplete(
                "no state-changing request was seen: send your tests through the gateway, then ask again"
                    .to_owned(),
            )),
            (0, false) => Ok(()),
            (1, false) => {
                Err(Failure::Failed("1 kind of state-changing request is not protected".to_owned()))
            }
            (many, false) => {
                Err(Failure::Failed(format!("{many} kinds of state-changing requests are not protected")))
            }
        }
    }

    fn of<'a>(&self, lines: &'a Lines, class: Class) -> impl Iterator<Item = (&'a Line, &'a u64)> {
        let strict = self.strict;
        lines.iter().filter(move |(line, _)| line.class(strict) == class)
    }

    fn as_json(&self, lines: &Lines, full: bool) -> String {
        let one = |(line, count): (&Line, &u64)| {
            json!({
                "method": line.method, "path": line.path, "route": line.route, "protection": line.protection,
                "refused": line.refused, "count": count,
            })
        };
        let of = |class: Class| -> Vec<Value> { self.of(lines, class).map(one).collect() };
        let mut report =
            json!({ "full": full, "unprotected": of(Class::Unprotected), "apart": of(Class::Apart) });
        if self.all {
            report["protected"] = of(Class::Protected).into();
        }
        format!("{report}\n")
    }

    fn as_text(&self, lines: &Lines, full: bool) -> String {
        let one = |(line, count): (&Line, &u64)| {
            let route = line.route.clone().unwrap_or_else(|| "-".to_owned());
            vec![line.method.clone(), line.path.clone(), thousands(*count), route, line.describe()]
        };
        let mut text = String::new();
        let mut part = |title: &str, class: Class| {
            if self.of(lines, class).next().is_some() {
                let table = table("method|path|>seen|route|why", self.of(lines, class).map(one));
                text.push_str(&format!("{title}\n{table}\n"));
            }
        };
        part("not protected: a retry may take effect twice", Class::Unprotected);
        part("listed apart: idempotent by method, or declared off (--strict counts them)", Class::Apart);
        if self.all {
            part("protected", Class::Protected);
        }
        if !lines.is_empty() && text.is_empty() {
            let count: u64 = lines.values().sum();
            text = format!(
                "Protected: all {} state-changing requests that were seen (--all lists them).\n",
                thousands(count)
            );
        }
        if full {
            text.push_str("A gateway's table is full: what came later is counted as (other).\n\n");
        }
        text.push_str(&advice(self.of(lines, Class::Unprotected).map(|(line, _)| line)));
        text
    }
}

fn advice<'a>(lines: impl Iterator<Item = &'a Line>) -> String {
    let (mut new, mut hints) = (String::new(), String::new());
    for line in lines {
        match &line.route {
            Some(route) if line.protection == "off" => {
                hints.push_str(&format!("# route {route:?}: replace key = \"off\" by \"required\" and choose a recovery\n"));
            }
            Some(route) => hints.push_str(&format!(
                "# route {route:?}: write key = \"required\" once all its clients send an Idempotency-Key\n"
            )),
            None if line.path.starts_with('/') => new.push_str(&format!(
                "\n[[route]]\nname = \"{}\"\nmethods = [\"{}\"]\npath = \"{}\"\nkey = \"required\" # or \"off\", if a second effect does no harm\n\
                 recovery = \"park\" # or \"probe\" or \"rerun\": config/routes.toml explains them\n",
                name(line),
                line.method,
                line.path.replace("{}", "{id}"),
            )),
            None => {}
        }
    }
    match (new.as_str(), hints.as_str()) {
        ("", "") => String::new(),
        (new, hints) => format!("In routes.toml, in every region:\n{hints}{new}"),
    }
}

fn name(line: &Line) -> String {
    let words = line.path.split('/').filter(|segment| !segment.is_empty() && !segment.contains(['{', '*']));
    let words: Vec<String> =
        std::iter::once(line.method.as_str()).chain(words).map(str::to_lowercase).collect();
    words.join("-")
}

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
        tell(self.json, &report, &judged(&report))
    }
}

/// The counts, in the order of their columns.
const COUNTS: [&str; 6] = ["run", "replayed", "in_doubt", "unprotected", "unjudged", "diverged"];

fn judged(report: &Value) -> String {
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
    use super::*;

    fn line(method: &str, path: &str, route: Option<&str>, protection: &str, refused: bool) -> Line {
        let report = json!({
            "method": method, "path": path, "route": route, "protection": protection, "refused": refused, "count": 1,
        });
        Line::read(&report).unwrap().0
    }

    #[test]
    fn the_check_fails_on_unprotected_traffic() {
        let class = |method, protection, strict| line(method, "/x", None, protection, false).class(strict);
        for strict in [false, true] {
            assert_eq!(class("POST", "protected", strict), Class::Protected);
            assert_eq!(class("PUT", "protected", strict), Class::Protected);
            assert_eq!(class("POST", "no-route", strict), Class::Unprotected);
            assert_eq!(class("PATCH", "optional-without-key", strict), Class::Unprotected);
            assert_eq!(class("MKCOL", "no-route", strict), Class::Unprotected);
            assert_eq!(class("POST", "of-tomorrow", strict), Class::Unprotected, "unknown is not protected");
            let apart = if strict { Class::Unprotected } else { Class::Apart };
            assert_eq!(class("PUT", "no-route", strict), apart);
            assert_eq!(class("DELETE", "optional-without-key", strict), apart);
            assert_eq!(class("POST", "off", strict), apart);
        }
    }

    #[test]
    fn the_advice_is_a_route_that_the_reader_takes() {
        let folder = tempfile::tempdir().unwrap();
        let lines = [
            line("POST", "/v1/shops/{}/Orders", None, "no-route", true),
            line("PUT", "/a/b/c/d/e/f/g/h/*", None, "no-route", false),
            line("(other)", "(other)", None, "no-route", true),
            line("POST", "/v1/notes", Some("notes"), "optional-without-key", false),
        ];
        let advice = advice(lines.iter());
        let (head, routes) = advice.split_once("[[route]]").unwrap();
        assert_eq!(head.lines().filter(|line| line.contains("route \"notes\"")).count(), 1, "{advice}");
        let file = folder.path().join("routes.toml");
        std::fs::write(&file, format!("[[route]]{routes}")).unwrap();
        let routes = crate::config::load_routes(&file).unwrap();
        let names: Vec<&str> = routes.0.iter().map(|route| &*route.name).collect();
        assert_eq!(names, ["post-v1-shops-orders", "put-a-b-c-d-e-f-g-h"]);
    }

    #[test]
    fn gateway_text_cannot_rewrite_the_terminal() {
        assert_eq!(line("POST", "/\u{1b}[2J", None, "no-route", true).path, "/ [2J");
    }

    #[test]
    fn a_report_is_a_table() {
        let report = json!({
            "region": "a", "seconds": 3600, "remembered": 2, "forgotten": 0,
            "routes": {
                "charges": { "run": 1234, "replayed": 5, "refused": { "key-missing": 6, "key-reused": 1 }, "diverged": 1 },
                "-": { "unprotected": 7, "refused": {} },
            },
        });
        let text = judged(&report);
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[3], ["-", "0", "0", "0", "7", "0", "0", "0"]);
        let charges = ["charges", "1,234", "5", "0", "0", "0", "1", "key-missing", "6,", "key-reused", "1"];
        assert_eq!(lines[4], charges);
    }
}
