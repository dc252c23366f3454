//! The commands of the lab: `demo`, `drill`, the sample services, and the janitor of them all.
//!
//! A build without the feature `lab` has none of them. They must not be needed to run a gateway.

mod demo;
mod drill;
mod janitor;
mod sample_postgres;
mod sample_upstream;

use clap::Subcommand;

use super::failure::Failure;

#[derive(Subcommand)]
pub enum Command {
    Demo(demo::Demo),
    Drill(drill::Drill),
    SampleUpstream(sample_upstream::SampleUpstream),
    SamplePostgres(sample_postgres::SamplePostgres),
    #[command(hide = true)]
    Janitor(janitor::Janitor),
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
