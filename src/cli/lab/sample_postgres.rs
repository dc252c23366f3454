//! `onceway sample-postgres`: a Postgres of its own for trying a gateway.
//!
//! `onceway_lab::cluster` runs it, as in the demo. It must not touch a server that it did not make.

use std::path::PathBuf;

use clap::Args;

use crate::cli::failure::Failure;
use crate::cli::process::{block_on, print};
use onceway_lab::sample;

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
        let ready = |url: &str| {
            print(&format!("listens: {url}\n")).map_err(|failure| anyhow::anyhow!(failure.told(false)))
        };
        block_on(async { sample::postgres(&self.data, self.port, ready).await.map_err(Failure::failed) })
    }
}
