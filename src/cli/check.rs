//! `onceway check`: lists the mistakes of configuration files. `onceway config explain`: the
//! meaning of their keys.
//!
//! Both connect to nothing. `config::reference` reads the reference files, which explain every key.

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::Args;
use serde_json::{Value, json};
use toml::de::DeTable;

use super::process::{Failure, complain, print};
use super::table::pairs;
use crate::config::reader::Problem;
use crate::config::reference::{self, Entry};
use crate::config::region::NO_OTLP;
use crate::config::secret::Need;
use crate::config::shared::{Difference, first_difference};
use crate::config::{self, Checked, Errors, Regional};
use crate::protocol::region::RegionName;

/// Check configuration files, and list every mistake in them.
///
/// A region file is checked together with the files it names, and so is a witness file. Ring,
/// route, credential and operator files can be checked alone. Several region files are also
/// compared: shared settings must be equal. Certificates and keys are read as a gateway reads them.
/// Nothing is connected to.
///
/// Secrets, certificates and environment variables that the files name and this machine does not
/// have are warnings: a configuration may be checked where it is written. The seed, tokens and keys
/// of the reference files are warnings, too, because everybody knows them. --strict is for the
/// machine that will run the configuration; add --serve if only gateways run on it.
#[derive(Args)]
#[command(after_long_help = "\
Examples:
  onceway check config/us-east.toml
  onceway check config/us-east.toml config/eu-west.toml config/ap-south.toml
  onceway check --strict --serve /etc/onceway/us-east.toml     on a gateway's machine, as `systemctl reload` does
  onceway check config/routes.toml

What a key means, and what may stand there: `onceway config explain KEY`.

With --json one object on stdout, {\"files\":[{\"file\",\"is\"}],\"problems\":[{\"file\",\"line\",\"key\",\"message\",\"severity\"}]}: line is from 1, null
for a file as a whole, key null where no single one is meant, severity error or warning.

Exit codes: 0 all is right; 2 something is wrong, each mistake on a line of its own as FILE:LINE: what, and what to do.")]
pub struct Check {
    /// Region files, or ring, route, credential or operator files alone.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Require everything that the files name: missing secrets, certificates and environment
    /// variables are errors.
    #[arg(long)]
    strict: bool,
    /// Look only for the needs of a process that serves: not for the secrets of [provision], which
    /// only `onceway store` reads.
    #[arg(long)]
    serve: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Advice on a region file among others that cannot make its store.
const NO_PROVISION: &str = "has no [provision]: gateways need none, but `onceway store init` and `serve --init` cannot make or renew this region's store with this file, so keep one elsewhere that has it";

#[derive(Default)]
struct All<'a> {
    /// The files that could be read, each with its kind.
    right: Vec<(&'a PathBuf, String)>,
    wrong: Vec<Problem>,
    missing: Vec<Problem>,
    advice: Vec<Problem>,
    regions: Vec<(&'a PathBuf, Regional)>,
}

impl Check {
    pub fn run(&self) -> Result<(), Failure> {
        let mut all = All::default();
        let need = if self.serve { Need::Gateway } else { Need::All };
        for file in &self.files {
            all.check(file, need);
        }
        let All { right, mut wrong, missing, advice, regions } = all;
        wrong.extend(compare(&regions));
        let mut missing = once(missing);
        if self.strict {
            wrong.append(&mut missing);
        }
        let wrong = once(wrong);
        let warnings: Vec<Problem> = missing.into_iter().chain(once(advice)).collect();
        if self.json {
            print(&as_json(&right, &wrong, &warnings))?;
        } else {
            for problem in &warnings {
                complain(&problem.line("warning: "));
            }
            // Nothing is in order as long as something is wrong.
            let lines = right.iter().filter(|_| wrong.is_empty());
            let lines = lines.map(|(file, what)| format!("{}: {what}, in order\n", file.display()));
            print(&lines.collect::<String>())?;
        }
        match (wrong.is_empty(), self.json) {
            (true, _) => Ok(()),
            (false, false) => Err(Errors(wrong).into()),
            // The problems stand on stdout.
            (false, true) => Err(Failure::Bad(format!("{} problems in the configuration", wrong.len()))),
        }
    }
}

fn as_json(right: &[(&PathBuf, String)], wrong: &[Problem], warnings: &[Problem]) -> String {
    let one = |problem: &Problem, severity: &str| {
        json!({
            "file": problem.file, "line": (problem.line > 0).then_some(problem.line), "key": problem.key.as_deref(),
            "message": problem.text, "severity": severity,
        })
    };
    let problems = wrong.iter().map(|problem| one(problem, "error"));
    let problems: Vec<Value> =
        problems.chain(warnings.iter().map(|problem| one(problem, "warning"))).collect();
    let files: Vec<Value> = right.iter().map(|(file, what)| json!({ "file": file, "is": what })).collect();
    format!("{}\n", json!({ "files": files, "problems": problems }))
}

/// Removes repeated problems: a file that several region files name is read once for each.
fn once(problems: Vec<Problem>) -> Vec<Problem> {
    let mut once = Vec::new();
    for problem in problems {
        if !once.contains(&problem) {
            once.push(problem);
        }
    }
    once
}

impl<'a> All<'a> {
    fn check(&mut self, file: &'a PathBuf, need: Need) {
        // A file that cannot be read or parsed counts as a region file, whose reader reports the
        // mistake. Numbers stay text, as for that reader: a seed may be larger than TOML's own
        // integers.
        let text = std::fs::read_to_string(file).unwrap_or_default();
        let table = DeTable::parse(&text).map(|table| table.into_inner()).unwrap_or_default();
        let has = |keys: &[&str]| keys.iter().any(|key| table.contains_key(*key));
        let environment = |name: &str| std::env::var(name).ok();
        let what = if has(&["seed", "place_by", "deployment"]) {
            let ring = self.found(config::check_ring(file));
            ring.map(|ring| format!("a ring of {} regions", ring.ring.regions().len()))
        } else if has(&["route"]) {
            self.found(config::check_routes(file)).map(|routes| format!("{} routes", routes.0.len()))
        } else if has(&["credential", "issuer"]) {
            self.found(config::check_credentials(file)).map(|_| "credentials".to_owned())
        } else if has(&["operator"]) {
            self.found(config::check_operators(file)).map(|count| format!("{count} tokens of operators"))
        } else if has(&["file"]) {
            let witness = self.found(config::check_witness(file, &environment));
            witness.map(|name| format!("witness {name}"))
        } else {
            let region = self.found(config::check_region(file, &environment, need));
            region.map(|region| {
                if region.exports_spans && !cfg!(feature = "otlp") {
                    let (file, key, text) = (file.clone(), Some("otlp".into()), NO_OTLP.to_owned());
                    self.missing.push(Problem { file, line: 0, key, text });
                }
                // One region alone is made by its gateway's own role.
                if need == Need::Gateway && has(&["peer"]) && !has(&["provision"]) {
                    let (file, key) = (file.clone(), Some("provision".into()));
                    self.advice.push(Problem { file, line: 0, key, text: NO_PROVISION.to_owned() });
                }
                let what = format!("region {} of {}", region.me, region.shared.deployment);
                self.regions.push((file, region));
                what
            })
        };
        self.right.extend(what.map(|what| (file, what)));
    }

    fn found<T>(&mut self, Checked { value, wrong, missing, advice }: Checked<T>) -> Option<T> {
        self.wrong.extend(wrong);
        self.missing.extend(missing);
        self.advice.extend(advice);
        value
    }
}

fn compare(regions: &[(&PathBuf, Regional)]) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut seen = BTreeMap::new();
    let Some((_, first)) = regions.first() else { return problems };
    for (file, config) in regions {
        if let Some(before) = seen.insert(&config.me, file) {
            let text =
                format!("region {} is the region of {} too: give each its own", config.me, before.display());
            problems.push(Problem { file: file.to_path_buf(), line: 0, key: None, text });
        }
        let differing = first_difference((&config.shared, &config.places), (&first.shared, &first.places));
        problems.extend(differing.into_iter().flatten().map(|found| differs(found, [&config.me, &first.me])));
    }
    problems
}

/// The problem of a setting that differs between two regions, placed in the file of one of them.
fn differs(found: Difference, regions: [&RegionName; 2]) -> Problem {
    let Difference { key, route, at: [here, there] } = found;
    let of = route.map(|name| format!(" of route {name:?}")).unwrap_or_default();
    let place = match there.line {
        0 => there.file.display().to_string(),
        line => format!("{}:{line}", there.file.display()),
    };
    let text = format!(
        "{key}{of} differs from {place}, so {} and {} do not share it, which all regions must",
        regions[0], regions[1]
    );
    Problem { file: here.file.to_path_buf(), line: here.line, key: Some(key.into()), text }
}

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
