//! `onceway serve`: one gateway process of one region.
//!
//! Neighbours: `config` checks everything first, `server::run` does the rest. It must not start anything before all is valid.

use std::path::PathBuf;

use clap::Args;

use super::{Failure, block_on, logging};
use crate::config::Config;
use crate::server::run;

/// Run one gateway of one region, until SIGTERM or SIGINT.
///
/// Reads the region file and the files it names, checks everything, and only then listens. On SIGTERM or SIGINT new keyed
/// requests are refused, those that have begun finish (at most `drain`), and it ends with 0.
#[derive(Args)]
#[command(after_long_help = "\
Examples:
  onceway serve --config config/us-east.toml
  ONCEWAY_LOG=onceway=debug onceway serve --config config/us-east.toml

Before the first start: `onceway check FILE`, then `onceway store init --config FILE`.

Exit codes: 0 stopped as asked; 1 could not start, or failed; 2 wrong arguments or configuration.")]
pub struct Serve {
    /// The region file.
    #[arg(long, env = "ONCEWAY_CONFIG", value_name = "FILE")]
    config: PathBuf,
}

impl Serve {
    /// Runs the command.
    pub fn run(&self) -> Result<(), Failure> {
        let config = Config::load(&self.config)?;
        logging::set_up(config.process.log)?;
        block_on(async { run::run(config).await.map_err(Failure::failed) })
    }
}
