//! The commands of the lab: `demo`, `drill`, the sample services for trying a deployment, and the
//! janitor of them all.
//!
//! `onceway_lab` does all of it. A build without the feature `lab` has none of them.

mod drill;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::process::{Failure, block_on, print};
use crate::config::span;
pub use drill::Drill;
use onceway_lab::binaries::Binaries;
use onceway_lab::demo::{self, Ended};
use onceway_lab::janitor::run_janitor;
use onceway_lab::sample;

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
