//! The mutated tree: a copy in the scratch folder, with every site in it, and its binaries.
//!
//! Unchanged files are not written again, so cargo builds little. A site that does not compile is
//! taken out of the copy and counted. This file must not write to the tree that it copies.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, bail};
use serde_json::Value;

use crate::site::{Site, edited};
use crate::{rust, sql};

/// Source of the module `mutant` of the mutated crate.
const CHOSEN: &str = include_str!("chosen.rs");
/// Code that sends statements to the server: file, text, and the text that replaces it to choose.
const STATEMENTS: [(&str, &str, &str); 3] = [
    (
        "src/adapters/postgres/run.rs",
        "prepare_cached(call.sql)",
        "prepare_cached(&crate::mutant::sql(call.sql))",
    ),
    (
        "src/adapters/postgres/provision/mod.rs",
        "client.query(sql, params)",
        "client.query(&*crate::mutant::sql(sql), params)",
    ),
    (
        "src/adapters/postgres/provision/mod.rs",
        "client.batch_execute(sql)",
        "client.batch_execute(&crate::mutant::sql(sql))",
    ),
];

/// A tree, and the folder for its mutated copy.
pub struct Tree {
    /// The tree, which is only read.
    pub top: PathBuf,
    /// The folder of the copy and of its builds.
    pub scratch: PathBuf,
}

/// Paths of binaries, by package and target.
pub type Binaries = BTreeMap<(String, String), PathBuf>;

impl Tree {
    fn copy(&self) -> PathBuf {
        self.scratch.join("tree")
    }

    /// Folder in which cargo runs the tests of a package.
    pub fn folder(&self, package: &str) -> PathBuf {
        let own = self.copy().join(package);
        if own.join("Cargo.toml").is_file() { own } else { self.copy() }
    }

    /// Sites of all files below these paths, in the order of the files' names.
    ///
    /// # Errors
    /// If a path does not exist, or a file cannot be read or parsed.
    pub fn sites(&self, paths: &[String]) -> anyhow::Result<Vec<Site>> {
        let mut files = BTreeSet::new();
        for path in paths {
            let full = self.top.join(path);
            if full.is_dir() {
                files.extend(
                    below(&full)?.into_iter().map(|file| format!("{}/{file}", path.trim_end_matches('/'))),
                );
            } else if full.is_file() {
                files.insert(path.clone());
            } else {
                bail!("{path} is not in {}", self.top.display());
            }
        }
        let mut sites: Vec<Site> = Vec::new();
        for file in files.iter().filter(|file| !is_left_alone(file)) {
            let source = fs::read_to_string(self.top.join(file)).with_context(|| file.clone())?;
            let first = u32::try_from(sites.len())? + 1;
            if file.ends_with(".rs") {
                sites.extend(rust::sites(file, &source, first)?);
            } else if file.ends_with(".sql") && !is_definition(file, &source) {
                sites.extend(sql::sites(file, &source, first));
            }
        }
        Ok(sites)
    }

    /// Writes the copy with these sites, runs cargo with these arguments, and returns the binaries.
    /// Sites that do not compile are taken out and added to `refused`. Blocks while cargo builds.
    ///
    /// # Errors
    /// If the tree cannot be copied, cargo cannot be run, or an error belongs to no site.
    pub fn build(
        &self,
        sites: &[Site],
        refused: &mut BTreeSet<u32>,
        arguments: &[String],
    ) -> anyhow::Result<Binaries> {
        loop {
            let kept: Vec<&Site> = sites.iter().filter(|site| !refused.contains(&site.number)).collect();
            self.write(&kept)?;
            let messages = self.cargo(arguments)?;
            let errors: Vec<&Value> = messages.iter().filter(|m| m["message"]["level"] == "error").collect();
            if errors.is_empty() {
                return Ok(messages.iter().filter_map(binary).collect());
            }
            let blamed = blamed(&kept, &errors);
            if blamed.is_empty() {
                let rendered = errors[0]["message"]["rendered"].as_str().unwrap_or("no message");
                bail!("the mutated tree does not compile, and not because of a site:\n{rendered}");
            }
            eprintln!("{} mutants do not compile and are left out", blamed.len());
            refused.extend(blamed);
        }
    }

    fn write(&self, kept: &[&Site]) -> anyhow::Result<()> {
        let mut by_file: BTreeMap<&str, Vec<&Site>> = BTreeMap::new();
        for site in kept {
            by_file.entry(&site.file).or_default().push(site);
        }
        let files = below(&self.top)?;
        for stale in below(&self.copy()).unwrap_or_default().difference(&files) {
            if stale != "src/mutant.rs" {
                fs::remove_file(self.copy().join(stale))?;
            }
        }
        for file in &files {
            let from = self.top.join(file);
            let into = self.copy().join(file);
            let mut bytes = fs::read(&from).with_context(|| file.clone())?;
            if let Some(sites) = by_file.get(file.as_str()) {
                bytes = edited(&String::from_utf8(bytes)?, sites).into_bytes();
            }
            for (_, statement, chosen) in STATEMENTS.iter().filter(|(path, ..)| path == file) {
                let text = String::from_utf8(bytes)?;
                if !text.contains(statement) {
                    bail!("{file} has no `{statement}` any more: name in tree.rs where statements pass");
                }
                bytes = text.replace(statement, chosen).into_bytes();
            }
            if file == "src/lib.rs" {
                bytes.extend(b"#[allow(missing_docs)]\npub mod mutant;\n");
            }
            put(&into, &bytes)?;
            fs::set_permissions(&into, fs::metadata(&from)?.permissions())?;
        }
        put(&self.copy().join("src/mutant.rs"), CHOSEN.as_bytes())
    }

    fn cargo(&self, arguments: &[String]) -> anyhow::Result<Vec<Value>> {
        let output = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
            .args(arguments)
            .args(["--message-format", "json"])
            .current_dir(self.copy())
            .env("CARGO_TARGET_DIR", self.scratch.join("target"))
            .stderr(Stdio::inherit())
            .output()
            .context("cargo cannot be run")?;
        let lines = String::from_utf8_lossy(&output.stdout);
        let messages: Vec<Value> = lines.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        let is_error = |message: &Value| message["message"]["level"] == "error";
        if !output.status.success() && !messages.iter().any(is_error) {
            bail!("`cargo {}` failed without an error of the compiler", arguments.join(" "));
        }
        Ok(messages)
    }
}

/// True for files of tests and for the list of plants: they have no sites.
fn is_left_alone(file: &str) -> bool {
    file.ends_with("tests.rs") || file.contains("/tests/") || file == "src/protocol/plant.rs"
}

/// True for a numbered file without a routine: it defines tables, and the server makes its checks.
fn is_definition(file: &str, source: &str) -> bool {
    let name = file.rsplit('/').next().unwrap_or(file);
    name.starts_with(|c: char| c.is_ascii_digit()) && !source.contains("language plpgsql")
}

/// Relative paths of all files below a folder, except builds and files of git.
fn below(top: &Path) -> anyhow::Result<BTreeSet<String>> {
    fn walk(top: &Path, within: &str, all: &mut BTreeSet<String>) -> anyhow::Result<()> {
        for entry in fs::read_dir(top.join(within)).with_context(|| top.display().to_string())? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let path = if within.is_empty() { name.clone() } else { format!("{within}/{name}") };
            if entry.file_type()?.is_file() && name != ".git" {
                all.insert(path);
            } else if entry.file_type()?.is_dir() && name != ".git" && name != "target" {
                walk(top, &path, all)?;
            }
        }
        Ok(())
    }
    let mut all = BTreeSet::new();
    walk(top, "", &mut all)?;
    Ok(all)
}

/// Writes a file, unless it has this content already: cargo builds again if a file's time changes.
fn put(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    if fs::read(path).is_ok_and(|there| there == bytes) {
        return Ok(());
    }
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::write(path, bytes).with_context(|| path.display().to_string())
}

fn binary(message: &Value) -> Option<((String, String), PathBuf)> {
    let path = message["executable"].as_str()?;
    let package = message["package_id"].as_str()?;
    // `path+file:///tree/simulation#0.1.0`, or `…#onceway@0.1.0` where the folder has another name.
    let (folder, version) = package.rsplit_once('#').unwrap_or(("", package));
    let package = match version.split_once('@') {
        Some((name, _)) => name,
        None => folder.rsplit('/').next().unwrap_or(folder),
    };
    let is_test = message["profile"]["test"].as_bool().unwrap_or(false);
    let kind = message["target"]["kind"][0].as_str().unwrap_or("");
    let target = match (kind, message["target"]["name"].as_str()?) {
        ("lib", _) => "lib",
        ("bin", _) if is_test => return None,
        (_, name) => name,
    };
    Some(((package.to_owned(), target.to_owned()), PathBuf::from(path)))
}

/// Sites that cause these errors of the compiler. For each error, the first step that finds sites
/// decides:
///
/// 1. sites that begin on a line of a primary span,
/// 2. sites that overlap the lines of a primary span,
/// 3. sites that begin on a line of another span.
fn blamed(kept: &[&Site], errors: &[&Value]) -> BTreeSet<u32> {
    let mut all = BTreeSet::new();
    for error in errors {
        let spans: Vec<&Value> = error["message"]["spans"].as_array().into_iter().flatten().collect();
        let on = |site: &Site, (first, last): (u64, u64)| (first..=last).contains(&(site.lines.0 as u64));
        let around = |site: &Site, (first, last): (u64, u64)| {
            site.lines.0 as u64 <= last && first <= site.lines.1 as u64
        };
        type Where<'a> = &'a dyn Fn(&Site, (u64, u64)) -> bool;
        let ways: [(bool, Where<'_>); 3] = [(true, &on), (true, &around), (false, &on)];
        for (primary, is_there) in ways {
            let mut those = BTreeSet::new();
            for span in spans.iter().filter(|span| span["is_primary"] == primary) {
                let lines = (span["line_start"].as_u64(), span["line_end"].as_u64());
                let (Some(file), (Some(first), Some(last))) = (span["file_name"].as_str(), lines) else {
                    continue;
                };
                let here = kept.iter().filter(|site| site.file == file && is_there(site, (first, last)));
                those.extend(here.map(|site| site.number));
            }
            if !those.is_empty() {
                all.extend(those);
                break;
            }
        }
    }
    all
}
