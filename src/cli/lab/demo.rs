//! `onceway demo`: a whole deployment on this machine, and a guided tour of it.
//!
//! `onceway_lab::demo` runs it. Stdout is for the tour.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use crate::cli::failure::Failure;
use crate::cli::process::block_on;
use crate::config::span;
use onceway_lab::binaries::Binaries;
use onceway_lab::demo::{self as fleet_demo, Ended};

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
        let demo = fleet_demo::Demo { exit, tour: !no_tour, json, rtt, port_base, data };
        match block_on(fleet_demo::run(demo))? {
            Ended::Well => Ok(()),
            Ended::Badly => Err(Failure::Failed("the demo did not end well: see above".to_owned())),
        }
    }
}
