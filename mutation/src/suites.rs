//! Suites: they find the tests that reach a site, and run these tests with the site's mutant.
//!
//! A first run without any mutant shows how long each test takes and which sites it reaches. A test
//! runs on a thread of its name. A site reached by another thread or process counts for all tests
//! that ran at that moment. This file must not leave a process behind.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant, SystemTime};

use anyhow::Context as _;
use serde::{Deserialize, Serialize};

/// A suite of the project's list.
#[derive(Clone, Debug)]
pub struct Suite {
    /// The suite's name, for people and results.
    pub name: &'static str,
    /// The package and the target of the suite's binary.
    pub binary: (&'static str, &'static str),
    /// Prefixes of the names of its tests. Empty: all tests.
    pub tests: &'static [&'static str],
    /// Arguments of a program that is no test binary. The program fails by its exit code.
    pub program: Option<&'static [&'static str]>,
    /// True if the suite has real servers and processes. Its tests mostly wait, and may fail for
    /// want of a core.
    pub real: bool,
}

impl Suite {
    /// Number of mutants that run at the same time.
    pub fn beside(&self) -> usize {
        if self.real { 1 } else { 2 }
    }

    /// Number of tests of one mutant that run at the same time.
    fn threads(&self) -> usize {
        if self.real { 6 } else { 1 }
    }
}

/// A suite after its run without a mutant.
pub struct Traced {
    pub suite: Suite,
    pub known: Known,
    path: PathBuf,
    folder: PathBuf,
}

/// Facts about a suite's tests, from the run without a mutant.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Known {
    /// Duration of each test that passes without a mutant.
    pub took: BTreeMap<String, Duration>,
    /// Tests that reach a site, by the site's number.
    pub reach: BTreeMap<u32, BTreeSet<String>>,
    /// Tests that fail without a mutant.
    pub failing: Vec<String>,
}

/// End of a run under a mutant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// All tests that ran passed.
    Passed,
    /// This test failed.
    Failed(String),
    /// The run took far longer than without the mutant.
    Late,
}

/// Name of the only test of a program.
pub const PROGRAM: &str = "the program";

impl Traced {
    /// Runs the suite without a mutant, or reads the facts that an earlier run of the same binary
    /// left. Blocks until the suite ends.
    ///
    /// # Errors
    /// If the binary cannot be run, or the facts cannot be read or written.
    pub fn new(suite: &Suite, path: &Path, folder: &Path, scratch: &Path) -> anyhow::Result<Self> {
        let kept = scratch.join(format!("known-{}.json", suite.name));
        let mut all = Self {
            suite: suite.clone(),
            known: Known::default(),
            path: path.to_owned(),
            folder: folder.to_owned(),
        };
        let changed = |path: &Path| fs::metadata(path).and_then(|about| about.modified());
        if changed(&kept).is_ok_and(|at| changed(path).is_ok_and(|built| built < at)) {
            all.known = serde_json::from_slice(&fs::read(&kept)?)?;
        } else {
            all.trace(&scratch.join(format!("trace-{}", suite.name)))?;
            fs::write(&kept, serde_json::to_vec(&all.known)?)?;
        }
        Ok(all)
    }

    fn trace(&mut self, file: &Path) -> anyhow::Result<()> {
        let _ = fs::remove_file(file);
        // With a single thread, libtest runs tests on the main thread, which has no test's name.
        let threads = self.suite.threads().max(2);
        let begun = SystemTime::now();
        let mut ended: Vec<(String, SystemTime)> = Vec::new();
        let command = self.command(None, threads, ("ONCEWAY_MUTANT_TRACE", file.as_os_str()));
        let end = watched(command, Duration::from_secs(3600), |name, passed| {
            ended.push((name.to_owned(), SystemTime::now()));
            if !passed {
                self.known.failing.push(name.to_owned());
            }
            true
        })?;
        if self.suite.program.is_some() {
            ended.push((PROGRAM.to_owned(), SystemTime::now()));
            self.known.failing.extend((end != End::Passed).then(|| PROGRAM.to_owned()));
        }
        let mut spans = spans(begun, &ended, threads);
        spans.retain(|name, _| !self.known.failing.contains(name));
        let took = |(from, to): &Span| to.duration_since(*from).unwrap_or_default();
        self.known.took = spans.iter().map(|(name, span)| (name.clone(), took(span))).collect();
        self.known.reach = reach(&fs::read_to_string(file).unwrap_or_default(), &spans);
        Ok(())
    }

    fn command(&self, tests: Option<&[String]>, threads: usize, env: (&str, &OsStr)) -> Command {
        let mut command = Command::new("nice");
        command.args(["-n", "15"]).arg(&self.path).current_dir(&self.folder);
        match (self.suite.program, tests) {
            (Some(arguments), _) => command.args(arguments),
            (None, Some(tests)) => command.arg("--exact").args(tests),
            (None, None) => command.args(self.suite.tests),
        };
        if self.suite.program.is_none() {
            command.arg("--test-threads").arg(threads.to_string());
        }
        command.env("CARGO_MANIFEST_DIR", &self.folder).env_remove("ONCEWAY_MUTANT").env(env.0, env.1);
        command
    }

    /// Runs these tests under a mutant. Blocks until the first fails, all end, or the time is over.
    ///
    /// # Errors
    /// If the binary cannot be run.
    pub fn run(&self, number: u32, tests: &[String]) -> anyhow::Result<End> {
        let number = number.to_string();
        let command = self.command(Some(tests), self.suite.threads(), ("ONCEWAY_MUTANT", number.as_ref()));
        let long: Duration = tests.iter().filter_map(|test| self.known.took.get(test)).sum();
        let mut failed = None;
        let end = watched(command, Duration::from_secs(20) + long * 6, |name, passed| {
            if !passed {
                failed = Some(name.to_owned());
            }
            passed
        })?;
        Ok(match (failed, end) {
            (Some(test), _) => End::Failed(test),
            (None, end) => end,
        })
    }
}

type Span = (SystemTime, SystemTime);

/// The tests that reach each site, by the lines of a trace.
fn reach(trace: &str, spans: &BTreeMap<String, Span>) -> BTreeMap<u32, BTreeSet<String>> {
    let mut all: BTreeMap<u32, BTreeSet<String>> = BTreeMap::new();
    for line in trace.lines() {
        let mut words = line.splitn(3, ' ');
        let (at, number) = (words.next().map(str::parse), words.next().map(str::parse));
        let (Some(Ok(at)), Some(Ok(number)), Some(thread)) = (at, number, words.next()) else { continue };
        let tests = all.entry(number).or_default();
        if spans.contains_key(thread) {
            tests.insert(thread.to_owned());
            continue;
        }
        let (at, slack) = (SystemTime::UNIX_EPOCH + Duration::from_millis(at), Duration::from_millis(100));
        let ran = spans.iter().filter(|(_, (from, to))| at + slack >= *from && at <= *to + slack);
        tests.extend(ran.map(|(name, _)| name.clone()));
    }
    all
}

/// Begin and end of each test. Tests begin in the order of their names, the next when one ends.
fn spans(begun: SystemTime, ended: &[(String, SystemTime)], threads: usize) -> BTreeMap<String, Span> {
    let mut names: Vec<&(String, SystemTime)> = ended.iter().collect();
    names.sort();
    let begins = |place: usize| if place < threads { begun } else { ended[place - threads].1 };
    names.into_iter().enumerate().map(|(place, (name, end))| (name.clone(), (begins(place), *end))).collect()
}

/// Runs a command in a process group of its own and passes each test that ended to `go_on`. Blocks
/// until `go_on` returns false, the command ends, or the time is over. If the command has not ended
/// by itself, the group is killed.
fn watched(
    mut command: Command,
    within: Duration,
    mut go_on: impl FnMut(&str, bool) -> bool,
) -> anyhow::Result<End> {
    let by = Instant::now() + within;
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).process_group(0);
    let mut child = command.spawn().with_context(|| format!("{command:?} cannot be run"))?;
    let out = child.stdout.take().context("no output")?;
    let (tell, told) = mpsc::channel();
    std::thread::spawn(move || {
        for line in BufReader::new(out).lines().map_while(Result::ok) {
            if tell.send(line).is_err() {
                break;
            }
        }
    });
    let end = loop {
        match told.recv_timeout(by.saturating_duration_since(Instant::now())) {
            Ok(line) => {
                if let Some((name, passed)) = verdict(&line)
                    && !go_on(name, passed)
                {
                    break End::Failed(name.to_owned());
                }
            }
            Err(mpsc::RecvTimeoutError::Timeout) => break End::Late,
            Err(mpsc::RecvTimeoutError::Disconnected) => break End::Passed,
        }
    };
    if end != End::Passed {
        kill(&child);
    }
    let status = child.wait().context("no exit code")?;
    Ok(if end == End::Passed && !status.success() { End::Failed(PROGRAM.to_owned()) } else { end })
}

fn kill(child: &Child) {
    let group = i32::try_from(child.id()).ok().and_then(rustix::process::Pid::from_raw);
    if let Some(group) = group {
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
    }
}

/// The test that a line of libtest names; true if that test passed.
fn verdict(line: &str) -> Option<(&str, bool)> {
    let (name, word) = line.strip_prefix("test ")?.split_once(" ... ")?;
    let name = name.strip_suffix(" - should panic").unwrap_or(name);
    match word.split(',').next()? {
        "ok" => Some((name, true)),
        word if word.starts_with("FAILED") => Some((name, false)),
        _ => None,
    }
}
