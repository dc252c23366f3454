//! `onceway-sim`: the failover simulation harness at the command line.
//!
//! It starts `command`. It must not do anything but start.

mod command;

use std::process::ExitCode;

fn main() -> ExitCode {
    command::main()
}
