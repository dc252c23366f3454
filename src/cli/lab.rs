//! The commands of the lab: `demo`, `drill`, the sample services, and the janitor of them all.
//!
//! A build without the feature `lab` has none of them.

mod demo;
mod drill;
mod sample;

use std::path::PathBuf;

use clap::Args;

use super::failure::Failure;
pub use demo::Demo;
pub use drill::Drill;
use onceway_lab::janitor::run_janitor;
pub use sample::{SamplePostgres, SampleUpstream};

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
