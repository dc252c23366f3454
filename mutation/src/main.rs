//! `onceway-mutation`: removes one check at a time and lists the checks that no test notices.
//!
//! One build has all mutants, and a number in the environment chooses the one that runs
//! (docs/mutation.md). This program must not write to the tree: it works on a copy in the target
//! folder.

mod changed;
#[allow(dead_code)]
mod chosen;
mod hunt;
mod project;
mod results;
mod rust;
mod site;
mod sql;
mod suites;
#[cfg(test)]
mod tests;
mod tree;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use clap::Parser;

use hunt::Bounds;
use results::{Counts, Equivalents, Results};
use site::Site;
use suites::{Suite, Traced};
use tree::Tree;

const HELP: &str = "\
Each mutant has one check forced, moved or left out. It is noticed if a test fails or hangs. All
others are printed, with the suites that reached them. A mutant that no test can notice stands with
its reason in mutation/equivalent.toml. Results are kept: a run that was stopped goes on.

Examples:
  cargo run -p mutation -- src/protocol --suites unit,simulation
  cargo run -p mutation -- --changed-since main --within 600 --suites unit,simulation

Exit codes: 0 all are noticed or equivalent; 1 some are not; 2 the request, or equivalent.toml, is
wrong; 3 the time was over before all were tried";

/// Removes one check at a time and lists the checks that no test notices.
#[derive(Parser)]
#[command(name = "onceway-mutation", after_help = HELP)]
struct Arguments {
    /// Files and folders to mutate. Without any: all code on which "once" depends.
    paths: Vec<String>,
    /// Suites to run, the cheapest first.
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "NAMES",
        default_value = "unit,simulation,swarm,store,doors"
    )]
    suites: Vec<String>,
    /// Try only mutants on lines that differ from this revision.
    #[arg(long, value_name = "REVISION")]
    changed_since: Option<String>,
    /// Begin no mutant later than this many seconds after the start.
    #[arg(long, value_name = "SECONDS")]
    within: Option<u64>,
    /// Limit the tests of one mutant in one suite to this many seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    at_most: u64,
    /// Print the mutants and try none of them.
    #[arg(long)]
    list: bool,
    /// Print the known results and try no mutant.
    #[arg(long)]
    report: bool,
    /// Try mutants again that no suite noticed before.
    #[arg(long)]
    again: bool,
    /// Keep results in this file [default: mutation/results.jsonl in the target folder].
    #[arg(long, value_name = "FILE")]
    results: Option<PathBuf>,
}

/// The tree to mutate, the suites to run, and their bounds.
struct Work<'a> {
    tree: &'a Tree,
    packages: &'a [&'a str],
    suites: &'a [Suite],
    bounds: Bounds,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match run(&arguments) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("onceway-mutation: {error:#}");
            ExitCode::from(2)
        }
    }
}

fn run(arguments: &Arguments) -> anyhow::Result<u8> {
    let begun = Instant::now();
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("the workspace")?;
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| top.join("target"), PathBuf::from);
    let tree = Tree { top: top.to_owned(), scratch: target.join("mutation") };
    let suites: Vec<Suite> = arguments.suites.iter().map(|name| named(name)).collect::<Result<_, _>>()?;
    let everything = tree.sites(&project::PATHS.map(str::to_owned))?;
    let equivalents = Equivalents::read(&top.join("mutation/equivalent.toml"), &everything)?;
    let mut sites = if arguments.paths.is_empty() { everything } else { tree.sites(&arguments.paths)? };
    if let Some(revision) = &arguments.changed_since {
        let changed = changed::since(top, revision)?;
        sites.retain(|site| changed::has(&changed, site));
    }
    if arguments.list {
        for site in &sites {
            println!("{}:{}: {}", site.file, site.lines.0, site.change);
        }
        println!("{} mutants", sites.len());
        return Ok(0);
    }
    let path = arguments.results.clone().unwrap_or_else(|| tree.scratch.join("results.jsonl"));
    let mut results = Results::open(&path)?;
    if arguments.again {
        results.forget_survivors();
    }
    let bounds = Bounds {
        until: arguments.within.map(|seconds| begun + Duration::from_secs(seconds)),
        at_most: Duration::from_secs(arguments.at_most),
    };
    let work = Work { tree: &tree, packages: &project::PACKAGES, suites: &suites, bounds };
    let not_begun =
        if arguments.report || sites.is_empty() { 0 } else { work.all(&sites, &equivalents, &mut results)? };
    let counts = results::report(&sites, &results, &equivalents);
    if not_begun > 0 {
        println!("the time was over: {not_begun} were not tried in the last suite");
    }
    Ok(code(counts, not_begun))
}

fn code(counts: Counts, not_begun: usize) -> u8 {
    match (not_begun, counts.survived + counts.unreached) {
        (1.., _) => 3,
        (0, 1..) => 1,
        (0, 0) => 0,
    }
}

fn named(name: &str) -> anyhow::Result<Suite> {
    let known = || project::SUITES.map(|suite| suite.name).join(", ");
    let suite = project::SUITES.into_iter().find(|suite| suite.name == name);
    suite.with_context(|| format!("no suite is named {name}: {}", known()))
}

impl Work<'_> {
    /// Builds, traces and tries, one suite after the other. Returns the number of mutants that did
    /// not begin in time, summed over the suites.
    fn all(&self, sites: &[Site], equivalents: &Equivalents, results: &mut Results) -> anyhow::Result<usize> {
        let compiling: Vec<Site> = sites.iter().filter(|site| !results.of(site).refused).cloned().collect();
        let mut refused = BTreeSet::new();
        // `cargo check` is fastest and finds nearly all mutants that do not compile.
        self.tree.build(&compiling, &mut refused, &self.arguments(&["check", "--lib"]))?;
        let mut not_begun = 0;
        for suite in self.suites {
            let (package, target) = suite.binary;
            let arguments = match target {
                "lib" => self.arguments(&["test", "--no-run", "--lib"]),
                _ if suite.program.is_some() => self.arguments(&["build", "--bin", target]),
                _ => self.arguments(&["test", "--no-run", "--test", target]),
            };
            let binaries = self.tree.build(&compiling, &mut refused, &arguments)?;
            let path = binaries.get(&(package.to_owned(), target.to_owned()));
            let path = path.with_context(|| format!("cargo built no {target} of {package}"))?;
            let mut tried = Vec::new();
            for site in compiling.iter().filter(|site| !equivalents.has(site)) {
                if refused.contains(&site.number) {
                    results.refuse(site)?;
                } else {
                    tried.push(site);
                }
            }
            eprintln!("{}: each test without a mutant", suite.name);
            let traced = Traced::new(suite, path, &self.tree.folder(package), &self.tree.scratch)?;
            for test in &traced.known.failing {
                eprintln!("{}: {test} fails without a mutant and is not asked", suite.name);
            }
            let reached = tried.iter().filter(|site| traced.known.reach.contains_key(&site.number)).count();
            let (tests, all) = (traced.known.took.len(), tried.len());
            eprintln!("{}: {tests} tests reach {reached} of {all} mutants", suite.name);
            not_begun += hunt::hunt(&traced, &tried, results, self.bounds)?;
        }
        Ok(not_begun)
    }

    /// Arguments of cargo, always for all packages: the set of packages decides how the crates that
    /// they share are built.
    fn arguments(&self, words: &[&str]) -> Vec<String> {
        let packages = self.packages.iter().flat_map(|name| ["-p", name]);
        // Optimized, since a mutant's tests run far more often than they are built.
        let fast = |name| ["--config".to_owned(), format!("profile.dev.package.{name}.opt-level=1")];
        let words = words.iter().copied().chain(packages).map(str::to_owned);
        words.chain(self.packages.iter().flat_map(fast)).collect()
    }
}
