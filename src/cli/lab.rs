//! The commands of the lab: `demo`, `drill`, the sample services for trying a deployment, and the
//! janitor of them all.
//!
//! `onceway_lab` does all of it. A build without the feature `lab` has none of them. Reports of
//! drills go to stdout, progress to stderr.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use serde::Serialize;
use serde_json::json;

use super::process::{Failure, block_on, print, tell};
use super::table::pairs;
use crate::config::span;
use onceway_lab::binaries::Binaries;
use onceway_lab::demo::{self, Ended};
use onceway_lab::deployment::Options;
use onceway_lab::drill::report::Report;
use onceway_lab::drill::summary::Summary;
use onceway_lab::drill::{self, Drill as Name, Settings, window};
use onceway_lab::janitor::run_janitor;
use onceway_lab::wait::Leave;
use onceway_lab::{ports, sample};

/// Run three regions on this machine, with a guided tour.
///
/// Starts us-east, eu-west and ap-south: a gateway and a private Postgres each, replication between
/// all, and a sample payments service that counts every effect. Then shows what happens to retries,
/// also when things break. Without --exit everything stays up for you to try, until Ctrl-C.
/// Everything it started ends with it, and nothing is left behind.
#[derive(Args, Clone)]
#[command(after_long_help = "\
Examples:
  onceway demo                              the tour, then yours to break
  onceway demo --exit                       the tour, then leave; exit code 1 if any effect happened twice
  onceway demo --no-tour --json             for programs: one JSON line when ready, one per event after
  onceway demo --rtt 200ms --port-base 9400

Ports: region number i (0, 1, 2) has base + 10·i and: +1 public, +2 admin, +3 peer, +4 sample upstream, +5 Postgres. Base itself
is control: GET /regions, GET /ledger, POST /regions/eu-west/kill, POST /links/us-east/eu-west/cut,
POST /endpoints/us-east/1/kill and more: each region's upstream has two endpoints behind TLS, beside its plain port.
Postgres 15 or newer is found by ONCEWAY_PG_BIN, pg_config or the distribution's folders. Without one, root gets it by apt-get,
and other users by `python3 -m pip` into ~/.cache/onceway.

Exit codes: 0 every effect happened once; 1 some effect happened twice, or something could not be started.")]
pub struct Demo {
    /// Leave after the tour.
    #[arg(long)]
    exit: bool,
    /// Run without the tour.
    #[arg(long)]
    no_tour: bool,
    /// Print JSON lines instead of prose.
    #[arg(long)]
    json: bool,
    /// Round trip between regions.
    #[arg(long, value_name = "SPAN", default_value = "60ms", value_parser = span::parse)]
    rtt: Duration,
    /// Fetch and install nothing: Postgres has to be here.
    #[arg(long)]
    offline: bool,
    /// The first port.
    #[arg(long, value_name = "PORT", default_value_t = 7400)]
    port_base: u16,
    /// Folder to keep the data in; by default a folder that is deleted in the end.
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
}

impl Demo {
    pub fn run(&self) -> Result<(), Failure> {
        let Self { exit, no_tour, json, rtt, offline, port_base, data } = self.clone();
        if offline {
            Binaries::find()?;
        }
        let demo = demo::Demo { exit, tour: !no_tour, json, rtt, port_base, data };
        match block_on(demo::run(demo))? {
            Ended::Well => Ok(()),
            Ended::Badly => Err(Failure::Failed("the demo did not end well: see above".to_owned())),
        }
    }
}

/// Run the sample payments service, until SIGTERM or SIGINT: an upstream to try a deployment with.
///
/// The service is one provider for all regions. It does not deduplicate, and writes every effect
/// into its ledger, a line each, before it answers: a key's lines in the ledger are its effects. It
/// answers at /v1/charges, /v1/payouts, /v1/emails and /v1/notes, and probes at /onceway/effects.
/// Anybody who reaches it may use it: never run it where real requests come.
#[derive(Args)]
#[command(after_long_help = "\
Examples:
  onceway sample-upstream --ledger ledger.jsonl                            for gateways on this machine
  onceway sample-upstream --ledger ledger.jsonl --listen 0.0.0.0:7404      for those of other machines, too
  grep -c '\"order-1001\"' ledger.jsonl                                      how often did it happen?

Exit codes: 0 stopped as asked; 1 could not start, as when the ledger's file is there already; 2 wrong arguments.")]
pub struct SampleUpstream {
    /// The file for its ledger, which must not exist yet: effects of different runs must not mix.
    #[arg(long, value_name = "FILE")]
    ledger: PathBuf,
    /// Address to listen on: IP address and port.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7404")]
    listen: SocketAddr,
}

impl SampleUpstream {
    pub fn run(&self) -> Result<(), Failure> {
        let ready = |address| {
            said(&format!("listens on {address}; every effect is a line of {}\n", self.ledger.display()))
        };
        block_on(sample::run(self.listen, &self.ledger, ready))
    }
}

/// Run a Postgres of its own, until SIGTERM or SIGINT: a store to try a gateway with.
///
/// Postgres 15 or newer is found, or fetched, as by `onceway demo`. It listens on loopback, and
/// lets every local program in as postgres, without a password: never keep real keys in it.
#[derive(Args)]
#[command(after_long_help = "\
Examples:
  onceway sample-postgres --data pg                postgres://postgres@127.0.0.1:5432/onceway
  onceway sample-postgres --data pg --port 5433

Exit codes: 0 stopped as asked; 1 could not start, as when the port is taken; 2 wrong arguments.")]
pub struct SamplePostgres {
    /// Folder of its data, which stays when it ends.
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
    /// Port on 127.0.0.1.
    #[arg(long, value_name = "PORT", default_value_t = 5432)]
    port: u16,
}

impl SamplePostgres {
    pub fn run(&self) -> Result<(), Failure> {
        let ready = |url: &str| said(&format!("listens: {url}\n"));
        block_on(sample::postgres(&self.data, self.port, ready))
    }
}

fn said(text: &str) -> anyhow::Result<()> {
    print(text).map_err(|failure| anyhow::anyhow!(failure.render(false)))
}

/// Wait on stdin for `bye`; if it ends without that, kill the processes that work in DIR.
#[derive(Args)]
#[command(hide = true)]
pub struct Janitor {
    /// The deployment's folder.
    dir: PathBuf,
    /// Delete the folder in the end.
    #[arg(long)]
    delete: bool,
}

impl Janitor {
    pub fn run(&self) -> Result<(), Failure> {
        Ok(run_janitor(&self.dir, self.delete)?)
    }
}

/// Break three regions on this machine on purpose, under load, and count effects.
///
/// Starts the deployment of `onceway demo`, and sends it new keys and retries from all regions.
/// Then it breaks something, mends it, and brings every key to its end. It compares the histories
/// of all keys with the ledger of the sample payments service: keys with more than one effect,
/// answers that changed, replies that a client should not see, times in which keys did not run.
/// Everything it started ends with it.
#[derive(Args)]
#[command(after_long_help = "\
Examples:
  onceway drill --list                    what there is
  onceway drill kill --runs 20            a region killed twenty times, with the distribution of the first run elsewhere
  onceway drill restart                   a gateway, a Postgres, a machine, two machines start again: seconds in which keys are refused
  onceway drill drain --runs 20           planned drains and returns, with the distribution of pauses
  onceway drill drain ring --json         one JSON object per run, and one per drill with \"summary\"
  onceway drill window                    what the window is worth: doubles measured and predicted
  onceway drill soak --minutes 30         two gateways per region under load, while files, certificates and gateways are replaced
  onceway drill reseed                    slots lost, the region killed, taken over and back while its records are copied
  onceway drill promote                   a primary under Patroni killed: rows lost, time without service, doubles
  onceway drill                           all of them but the soak and promote

The soak changes routes and back (SIGHUP) every 20 s, replaces all certificates every 90 s, restarts one gateway a minute (orderly and by SIGKILL
in turn) and drains a region every five minutes; below ten minutes everything comes more often. It holds: no double effect but by
rerun, every answer settled in every region, audits clean, no claim lost, no connection broken but by a restart, and for each region's
first gateway, which is never restarted, the median of the last quarter against that of the second: memory at most 10 % and 8 MiB above
it, descriptors at most two above it. Apart are connections to the store, which a pool keeps once it needed them, never more than 30;
and below twenty minutes connections to upstreams and from peers, which are kept for up to four minutes, never more than 40 descriptors
(two more for each key per second above 16).

Reseed drops the slots that two regions have at a third, kills the third and starts it when its keys run elsewhere. Both follow it anew
(`onceway store reseed`), and its heartbeats arrive at once, while a lock keeps its records from being copied. Keys that had run there, and that
nobody else knows, are sent again. It holds: the region is not heard of before its records are copied, and a key with a second effect is
listed by a store and by `onceway audit`.

Promote hands one region's Postgres to Patroni, with a synchronous standby, and kills the primary and its Patroni. Patroni promotes the standby
when its ttl of 20 s is over. The others and the promoted region then follow one another anew (`onceway store reseed`). It holds: no row lost,
no key with a second effect. It needs patroni and etcd on PATH: `apt-get install patroni python3-etcd etcd-server`.

A route that says recovery = \"rerun\" asks for a second effect where the first is in doubt: those doubles are counted apart.

Exit codes: 0 every bound held; 1 one did not, or something could not be started; 2 wrong arguments.")]
pub struct Drill {
    /// Names of the drills; all but the soak and promote if none is named.
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    /// Runs of each drill, except window, which runs once.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    runs: u32,
    /// Seconds that a fault lasts, for drills that have no length of their own.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(0..=3600))]
    seconds: Option<u64>,
    /// Minutes that the soak goes on.
    #[arg(long, value_name = "N", default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    minutes: u64,
    /// Keys that clients start per second, in all regions together.
    #[arg(long, value_name = "N", default_value_t = 15, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rate: u32,
    /// Round trip between regions.
    #[arg(long, value_name = "SPAN", default_value = "60ms", value_parser = span::parse)]
    rtt: Duration,
    /// The first port; by default free ones are chosen.
    #[arg(long, value_name = "PORT")]
    port_base: Option<u16>,
    /// Only report times, and hold no span against a bound: for a machine that does other work,
    /// too.
    #[arg(long)]
    untimed: bool,
    /// Fetch and install nothing: Postgres has to be here.
    #[arg(long)]
    offline: bool,
    /// Print one JSON object per run, then one per drill that adds its runs up.
    #[arg(long)]
    json: bool,
    /// List the drills and leave.
    #[arg(long)]
    list: bool,
}

impl Drill {
    pub fn run(&self) -> Result<(), Failure> {
        let drills = self.drills()?;
        if self.list {
            return print(&listed(&drills, self.json));
        }
        if self.offline {
            Binaries::find()?;
        }
        let port_base = self.port_base.map_or_else(|| ports::free_run(60), Ok)?;
        let program = std::env::current_exe().context("where is the onceway binary?")?;
        let options = Options { program, port_base, rtt: self.rtt, ..Options::default() };
        let settings = Settings {
            runs: self.runs,
            span: self.seconds.map(Duration::from_secs),
            rtt: self.rtt,
            rate: f64::from(self.rate),
            timed: !self.untimed,
            soak: Duration::from_secs(60 * self.minutes),
            ..Settings::default()
        };
        block_on(self.all(&drills, &options, &settings))
    }

    fn drills(&self) -> Result<Vec<Name>, Failure> {
        if self.names.is_empty() {
            let listed = |drill: &Name| self.list || !drill.is_named();
            return Ok(Name::ALL.into_iter().filter(listed).collect());
        }
        let parse = |name: &String| {
            Name::parse(name).ok_or_else(|| {
                Failure::Bad(format!("there is no drill {name:?}: `onceway drill --list` names them all"))
            })
        };
        self.names.iter().map(parse).collect()
    }

    async fn all(&self, drills: &[Name], options: &Options, settings: &Settings) -> Result<(), Failure> {
        let say = |text: &str| eprintln!("  … {text}");
        let mut written = Ok(());
        let mut heard = |report: &Report| {
            let printed = self.print(report, || report.in_words());
            written = std::mem::replace(&mut written, Ok(())).and(printed);
        };
        let ran = unless_asked_to_leave(drill::run(drills, options, settings, &say, &mut heard)).await?;
        written?;
        let not_held = ran.iter().filter(|report| !report.held);
        let mut broken: Vec<String> =
            not_held.map(|report| format!("{} run {}", report.drill, report.run)).collect();
        for summary in Summary::all(&ran) {
            self.print(&summary, || format!("\n{}", summary.in_words()))?;
        }
        if drills.contains(&Name::Window) {
            let rows = unless_asked_to_leave(window::table(options, settings, &say)).await?;
            let wrong = window::broken(&rows);
            let said = json!({ "drill": "window", "rows": rows, "broken": wrong });
            tell(self.json, &said, &format!("\n{}", window::in_words(&rows)))?;
            broken.extend(wrong);
        }
        match broken.is_empty() {
            true => Ok(()),
            false => Err(Failure::Failed(format!("bounds did not hold: {}", broken.join("; ")))),
        }
    }

    /// Prints a report as JSON, or in these words.
    fn print(&self, report: &impl Serialize, words: impl FnOnce() -> String) -> Result<(), Failure> {
        if self.json { print(&format!("{}\n", serde_json::to_string(report)?)) } else { print(&words()) }
    }
}

/// Result of the work, unless a signal comes first. Then everything that was started ends with this
/// process (the janitor waits for that).
async fn unless_asked_to_leave<T>(work: impl Future<Output = anyhow::Result<T>>) -> Result<T, Failure> {
    let mut leave = Leave::heard()?;
    tokio::select! {
        biased;
        () = leave.asked() => Err(Failure::Failed("interrupted".to_owned())),
        done = work => Ok(done?),
    }
}

fn listed(drills: &[Name], as_json: bool) -> String {
    if as_json {
        let lines = drills.iter().map(|drill| json!({ "name": drill.name(), "about": drill.about() }));
        return lines.map(|line| format!("{line}\n")).collect();
    }
    pairs(drills.iter().map(|drill| (drill.name(), drill.about().to_owned())))
}
