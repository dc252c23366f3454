//! `onceway janitor`, hidden: cleans up after a demo that was killed.
//!
//! `onceway_lab::janitor` starts this command and does its work. It must not run on an async
//! runtime: the janitor has its own.

use std::path::PathBuf;

use clap::Args;

use crate::cli::failure::Failure;
use onceway_lab::janitor::run_janitor;

/// Wait on stdin for `bye`; if it ends without that, kill the processes that work in DIR.
#[derive(Args)]
pub struct Janitor {
    /// The deployment's folder.
    dir: PathBuf,
    /// Delete the folder in the end.
    #[arg(long)]
    delete: bool,
}

impl Janitor {
    pub fn run(&self) -> Result<(), Failure> {
        run_janitor(&self.dir, self.delete).map_err(Failure::failed)
    }
}
