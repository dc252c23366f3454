//! The commands of the lab: `demo`, `drill`, the sample services, and the janitor of them all.
//!
//! A build without the feature `lab` has none of them. They must not be needed to run a gateway.

mod demo;
mod drill;
mod sample;

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::failure::Failure;
use onceway_lab::janitor::run_janitor;

#[derive(Subcommand)]
pub enum Command {
    Demo(demo::Demo),
    Drill(drill::Drill),
    SampleUpstream(sample::SampleUpstream),
    SamplePostgres(sample::SamplePostgres),
    #[command(hide = true)]
    Janitor(Janitor),
}

impl Command {
    pub fn run(self) -> Result<(), Failure> {
        match self {
            Self::Demo(demo) => demo.run(),
            Self::Drill(drill) => drill.run(),
            Self::SampleUpstream(sample) => sample.run(),
            Self::SamplePostgres(sample) => sample.run(),
            Self::Janitor(janitor) => janitor.run(),
        }
    }
}

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
