//! `onceway check`: is this configuration right?
//!
//! Neighbours: `config` reads and checks. It must not connect to anything.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clap::Args;

use super::{Failure, print};
use crate::config::reader::Problem;
use crate::config::witness::WitnessConfig;
use crate::config::{self, Config, Errors};

/// Check configuration files, and list every mistake in them.
///
/// A region file is checked together with the files it names, a witness file too. Ring, route and credential files can be checked alone. Several
/// region files are also compared: what all regions must share must be equal. Nothing is connected to.
#[derive(Args)]
#[command(after_long_help = "\
Examples:
  onceway check config/us-east.toml
  onceway check config/us-east.toml config/eu-west.toml config/ap-south.toml
  onceway check config/routes.toml

Exit codes: 0 all is right; 2 something is wrong, each mistake on a line of its own as FILE:LINE: what, and what to do.")]
pub struct Check {
    /// Region files, or ring, route or credential files alone.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
}

impl Check {
    /// Runs the command.
    pub fn run(&self) -> Result<(), Failure> {
        let (mut problems, mut regions, mut text) = (Vec::new(), Vec::new(), String::new());
        for file in &self.files {
            match check(file) {
                Ok((what, config)) => {
                    text.push_str(&format!("{}: {what}\n", file.display()));
                    regions.extend(config.map(|config| (file, config)));
                }
                Err(Errors(found)) => problems.extend(found),
            }
        }
        problems.extend(compare(&regions));
        // Files that several region files name are read once for each.
        let mut once = Vec::new();
        for problem in problems {
            if !once.contains(&problem) {
                once.push(problem);
            }
        }
        print(&text)?;
        if once.is_empty() { Ok(()) } else { Err(Errors(once).into()) }
    }
}

/// What the file is, if it is right.
fn check(file: &Path) -> Result<(String, Option<Box<Config>>), Errors> {
    // A file that cannot be read or parsed is taken for a region file, whose reader says what is wrong.
    let table: toml::Table =
        std::fs::read_to_string(file).ok().and_then(|text| text.parse().ok()).unwrap_or_default();
    let has = |keys: &[&str]| keys.iter().any(|key| table.contains_key(*key));
    if has(&["seed", "place_by", "deployment"]) {
        let ring = config::load_ring(file)?;
        return Ok((format!("a ring of {} regions, in order", ring.ring.regions().len()), None));
    }
    if has(&["route"]) {
        let routes = config::load_routes(file)?;
        return Ok((format!("{} routes, in order", routes.0.len()), None));
    }
    if has(&["credential", "issuer"]) {
        config::load_credentials(file)?;
        return Ok(("credentials, in order".to_owned(), None));
    }
    if has(&["file"]) {
        let witness = WitnessConfig::load(file)?;
        return Ok((format!("witness {}, in order", witness.name), None));
    }
    let config = Config::load(file)?;
    Ok((format!("region {} of {}, in order", config.me, config.shared.deployment), Some(Box::new(config))))
}

/// What is wrong with several regions together.
fn compare(regions: &[(&PathBuf, Box<Config>)]) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut seen = BTreeMap::new();
    let Some((first_file, first)) = regions.first() else { return problems };
    for (file, config) in regions {
        let mut add = |text: String| problems.push(Problem { file: file.to_path_buf(), line: 0, text });
        if let Some(before) = seen.insert(&config.me, file) {
            add(format!("region {} is the region of {} too: give each its own", config.me, before.display()));
        }
        if config.shared.ring.digest() != first.shared.ring.digest() {
            add(format!(
                "its ring differs from that of {}: all regions share one ring file",
                first_file.display()
            ));
        }
        if config.shared.digest != first.shared.digest {
            add(format!(
                "its routes, clocks, heartbeat or failover differ from those of {}: all regions share these files",
                first_file.display()
            ));
        }
    }
    problems
}
