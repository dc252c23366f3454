//! `onceway sample-upstream` and `onceway sample-postgres`: the demo's payments service, and a
//! Postgres, for trying a deployment before the user's own take their places. `onceway_lab::sample`
//! runs them.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;

use crate::cli::failure::Failure;
use crate::cli::process::{block_on, print};
use onceway_lab::sample;

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
