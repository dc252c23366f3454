//! `onceway-sim`: the failover simulation harness at the command line.
//!
//! Neighbours: `command` has the commands; the library plays. It must not do anything but start.

mod command;

use std::process::ExitCode;

fn main() -> ExitCode {
    command::main()
}
